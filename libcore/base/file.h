// SPDX-License-Identifier: Apache-2.0
// Files as ShardForge uses them: whole reads, exact reads, and publication by rename.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace sf {

// Owns a file descriptor. Closing twice is harmless; explicit close() reports errors, the destructor does not.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() {
    int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void close(std::string_view what);  // throws kIo: a full disk may only show here

 private:
  int fd_ = -1;
};

// All throw with the path in the message; a missing file is kNoInput, a full disk kIo.
UniqueFd open_read(const std::filesystem::path& path);
UniqueFd create_file(const std::filesystem::path& path);  // O_CREAT|O_TRUNC, 0644; kCantCreate
std::string read_file(const std::filesystem::path& path, size_t limit = size_t{1} << 31);
void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path_for_messages);
void write_all(int fd, std::string_view text, const std::filesystem::path& path_for_messages);
void pread_exact(int fd, std::span<std::byte> into, uint64_t offset, const std::filesystem::path& path_for_messages);
void sync_fd(int fd, const std::filesystem::path& path_for_messages);
void sync_dir(const std::filesystem::path& dir);
// Throws kCantCreate if `path` is a part of what another verb published: a file of a checkpoint or of a feature
// directory (beside manifest.json or contract.json), or a run's metrics. Called before a result replaces a file.
void refuse_to_replace(const std::filesystem::path& path);
// Temporary sibling, fsync, rename, fsync of the directory: readers see the old bytes or the new ones. On any error
// the temporary file is removed.
void write_atomic(const std::filesystem::path& path, std::string_view text);

// Exclusive ownership of a directory by one run: a locked file `.lock` naming host, pid and command.
// Throws kCantCreate naming the owner if another run holds it. Released (and the file removed) by destruction.
class DirLock {
 public:
  static DirLock acquire(const std::filesystem::path& dir, std::string_view who);
  DirLock(DirLock&&) noexcept = default;
  DirLock& operator=(DirLock&&) noexcept = default;
  ~DirLock();

 private:
  DirLock(UniqueFd fd, std::filesystem::path file) : fd_(std::move(fd)), file_(std::move(file)) {}
  UniqueFd fd_;
  std::filesystem::path file_;
};

}  // namespace sf
