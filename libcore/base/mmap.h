// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only. Writes to the pages fault by hardware; the file's length is checked before use.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace sf {

class MappedFile {
 public:
  static MappedFile open(const std::filesystem::path& path);  // an empty file maps to an empty span
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sf
