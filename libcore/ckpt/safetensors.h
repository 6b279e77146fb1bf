// SPDX-License-Identifier: Apache-2.0
// safetensors files: every byte of the header is hostile until checked (models_text_scoring 6.1-6.3).
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mmap.h"
#include "base/shape.h"

namespace sf::ckpt {

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
  uint64_t begin = 0, end = 0;  // bytes in the file, counted from its first byte
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

// Streaming form for files larger than memory: declare all tensors (begin and end are ignored), then append their bytes
// in that order in pieces. Declare wide elements first: the format allows no padding between tensors.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorInfo>& declared,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();  // an unfinished file is removed
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  void append(std::span<const std::byte> bytes);  // kSoftware if more than declared
  void finish();                                  // fsync and rename; kSoftware if bytes are missing

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sf::ckpt
