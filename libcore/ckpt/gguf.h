// SPDX-License-Identifier: Apache-2.0
// GGUF files, versions 2 and 3: metadata, tensors, and their values as fp32. Every count and length of the file is
// hostile: it is bounded by the bytes that are left before anything is allocated. Source: ggml's format description.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/shape.h"

namespace sf::ckpt {

// Numbers are ggml's. Files with other types are refused by number and name.
enum class GgufType : uint32_t { kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8, kQ6_K = 14, kBF16 = 30 };

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::kF32;
  Shape shape;                    // slowest first, as in PyTorch; the last extent is a whole number of blocks
  uint64_t begin = 0, bytes = 0;  // in the file
};

// "Q4_1"; for a number that is no known type "type N".
std::string gguf_type_name(uint32_t type);
bool is_quantised(GgufType type);

// Values of whole blocks. Requires: `blocks` holds exactly the blocks of to.size() values. The products and sums are
// single fp32 operations on the block's half-precision scales, in the order of the type's formula.
void dequantise(GgufType type, std::span<const std::byte> blocks, std::span<float> to);

class GgufFile {
 public:
  // kNoInput if missing; kData naming what is wrong (not GGUF, truncated, unknown type, overlapping tensors, ...).
  static GgufFile open(const std::filesystem::path& path);
  // True if the file exists and begins with the magic bytes.
  static bool is_gguf(const std::filesystem::path& path);

  // Keys in file order. Integers above 2^63 - 1 are refused; fp32 values are widened exactly.
  const Json& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in file order
  const GgufTensor* find(std::string_view name) const;                 // null if absent
  // Values [first, first + to.size()) of a tensor, both whole numbers of blocks, by pread: what passes leaves no page
  // in this process's memory.
  void read(const GgufTensor& tensor, uint64_t first, std::span<float> to) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::shared_ptr<UniqueFd> file_;
  Json metadata_ = Json::object();
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace sf::ckpt
