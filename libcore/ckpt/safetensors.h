// SPDX-License-Identifier: Apache-2.0
// safetensors files: every byte of the header is hostile until checked (models_text_scoring 6.1-6.3).
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/shape.h"

namespace sf::ckpt {

inline constexpr size_t kBounceBytes = size_t{4} << 20;  // what passes through memory at once

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;  // kU8 for the eight-bit floats, which have no arithmetic here: `type` says which
  Shape shape;
  uint64_t begin = 0, end = 0;  // bytes in the file, counted from its first byte
  std::string_view type = {};   // the format's own name: "F32", "F8_E4M3"; empty in a declaration

  uint64_t bytes() const { return end - begin; }
};

// Bytes on their way into a file. Where they lie in another file as they are, `fd` and `offset` say where: the kernel
// may then copy them from there.
struct Piece {
  std::span<const std::byte> bytes;
  int fd = -1;
  uint64_t offset = 0;

  Piece(std::span<const std::byte> b) : bytes(b) {}
  Piece(const std::vector<std::byte>& b) : bytes(b) {}
  Piece(std::span<const std::byte> b, int f, uint64_t at) : bytes(b), fd(f), offset(at) {}
  operator std::span<const std::byte>() const { return bytes; }
};

// An open file. Views point into the mapping and live as long as this object (or a copy of it: copies share the
// mapping).
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);      // kData with the rule that was broken
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in file order
  const TensorInfo* find(std::string_view name) const;                 // null if absent
  TensorView view(std::string_view name) const;                        // kData if absent
  // Aligned to its element size: a tensor that the file stores misaligned is copied on first use. Thread safe.
  TensorView view(const TensorInfo& info) const;
  // Bytes [offset, offset + to.size()) of a tensor, by pread: what passes leaves no page in this process's memory.
  void read(const TensorInfo& info, uint64_t offset, std::span<std::byte> to) const;
  // All of its bytes in order, at most kBounceBytes at a time.
  void stream(const TensorInfo& info, const std::function<void(const Piece&)>& sink) const;
  uint64_t bytes_read() const;  // by read() and stream(), of this file and its copies
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  struct Mapping;
  std::filesystem::path path_;
  std::shared_ptr<Mapping> mapping_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

// Writes one file through a temporary sibling with fsync and rename: on error nothing is left behind. Names are unique;
// tensors lie in the file widest element first, then by name, so that every one is aligned. `{"format": "pt"}` is added
// to the metadata unless given: transformers refuses a file without it.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, TensorView>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

// A file that several processes fill: its header, and its full size reserved (kIo where the disk is too small for it).
// Order and metadata are those of write_safetensors().
void reserve_safetensors(const std::filesystem::path& path, std::vector<TensorInfo> declared,
                         const std::map<std::string, std::string>& metadata = {});

// Fills parts of a reserved file; several may do so at once.
class SafetensorsFiller {
 public:
  explicit SafetensorsFiller(const std::filesystem::path& path);
  void write(const TensorInfo& info, uint64_t offset, std::span<const std::byte> bytes);  // info: the open file's
  void sync();

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  uint64_t unsynced_ = 0;
};

// Streaming form for files larger than memory: declare all tensors (begin and end are ignored), then append their bytes
// in that order in pieces. Declare wide elements first: the format allows no padding between tensors.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorInfo>& declared,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();  // an unfinished file is removed
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  void append(const Piece& piece);  // kSoftware if more than declared
  void finish();                    // fsync and rename; kSoftware if bytes are missing

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sf::ckpt
