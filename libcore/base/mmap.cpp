// SPDX-License-Identifier: Apache-2.0
#include "base/mmap.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace sf {

MappedFile MappedFile::open(const std::filesystem::path& path) {
  UniqueFd fd = open_read(path);
  struct stat info {};
  SF_CHECK(fstat(fd.get(), &info) == 0, Exit::kIo, "cannot stat {}: {}", path.string(), errno_text(errno));
  SF_CHECK(S_ISREG(info.st_mode), Exit::kNoInput, "{} is not a regular file", path.string());
  MappedFile file;
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ == 0) return file;
  void* at = mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  SF_CHECK(at != MAP_FAILED, Exit::kOs, "cannot map {} ({} bytes): {}", path.string(), file.size_, errno_text(errno));
  file.data_ = static_cast<const std::byte*>(at);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace sf
