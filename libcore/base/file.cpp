// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/fault.h"
#include "base/present.h"

namespace sf {
namespace fs = std::filesystem;

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

void UniqueFd::close(std::string_view what) {
  if (fd_ < 0) return;
  int rc = ::close(release());
  SF_CHECK(rc == 0, Exit::kIo, "cannot close {}: {}", what, errno_text(errno));
}

namespace {

constexpr int kMostLinks = 40;  // as the kernel follows

// What a shell's <(command) names, or a redirected standard input.
bool names_descriptor(const fs::path& path) {
  const std::string& text = path.native();
  return text.starts_with("/dev/fd/") || text.starts_with("/proc/self/fd/") || text == "/dev/stdin";
}

bool is_plain(mode_t mode) {
  return S_ISREG(mode) || S_ISDIR(mode);
}

// The file that a chain of symbolic links names, whether it exists or not.
fs::path end_of_links(fs::path path) {
  std::error_code ignored;
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, ignored)); ++links) {
    SF_CHECK(links < kMostLinks, Exit::kCantCreate, "{} is a symbolic link that leads nowhere (a loop)", path.string());
    fs::path next = fs::read_symlink(path, ignored);
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  return path;
}

// A device, FIFO or pipe takes the bytes as they come; it is not replaced.
void write_into(const fs::path& path, std::string_view text) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  SF_CHECK(fd.valid(), exit_of_errno(errno, Exit::kCantCreate), "cannot write into {}: {}", path.string(),
           errno == ENXIO ? "no regular file, and nobody reads from it" : errno_text(errno));
  SF_CHECK(fcntl(fd.get(), F_SETFL, 0) == 0, Exit::kIo, "cannot write into {}: {}", path.string(), errno_text(errno));
  write_all(fd.get(), text, path);
  fd.close(path.string());
}

}  // namespace

UniqueFd open_read(const fs::path& path) {
  struct stat info {};  // before open(2), where a FIFO without a writer blocks
  SF_CHECK(stat(path.c_str(), &info) != 0 || is_plain(info.st_mode) || names_descriptor(path), Exit::kNoInput,
           "{} is not a regular file", path.string());
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.valid()) return fd;
  const int number = errno;
  std::error_code ignored;
  SF_CHECK(number != ENOENT || !fs::is_symlink(path, ignored), Exit::kNoInput,
           "{} is a symbolic link to {}, which is not there", path.string(), fs::read_symlink(path, ignored).string());
  fail(exit_of_errno(number, Exit::kNoInput), "cannot open {}: {}", path.string(), errno_text(number));
}

UniqueFd create_file(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  SF_CHECK(fd.valid(), exit_of_errno(errno, Exit::kCantCreate), "cannot create {}: {}", path.string(),
           errno_text(errno));
  return fd;
}

bool is_present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

std::string read_file(const fs::path& path, size_t limit) {
  UniqueFd fd = open_read(path);
  struct stat info {};
  SF_CHECK(fstat(fd.get(), &info) == 0, Exit::kIo, "cannot stat {}: {}", path.string(), errno_text(errno));
  SF_CHECK(!S_ISDIR(info.st_mode), Exit::kNoInput, "{} is a directory, wanted a file", path.string());
  std::string text;
  text.reserve(static_cast<size_t>(info.st_size));
  char buffer[1 << 16];
  for (;;) {
    ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    SF_CHECK(got >= 0, Exit::kIo, "cannot read {}: {}", path.string(), errno_text(errno));
    if (got == 0) return text;
    SF_CHECK(text.size() + static_cast<size_t>(got) <= limit, Exit::kData,
             "{} is larger than the {} bytes allowed here", path.string(), limit);
    text.append(buffer, static_cast<size_t>(got));
  }
}

void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    SF_CHECK(done >= 0, exit_of_errno(errno, Exit::kIo), "cannot write {}: {}", path.string(), errno_text(errno));
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void write_all(int fd, std::string_view text, const fs::path& path) {
  write_all(fd, std::as_bytes(std::span(text.data(), text.size())), path);
}

void pread_exact(int fd, std::span<std::byte> into, uint64_t offset, const fs::path& path) {
  while (!into.empty()) {
    ssize_t got = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    SF_CHECK(got >= 0, Exit::kIo, "cannot read {} at byte {}: {}", path.string(), offset, errno_text(errno));
    SF_CHECK(got > 0, Exit::kData, "{} ends at byte {}, {} more wanted: the file is truncated", path.string(), offset,
             into.size());
    into = into.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
}

void sync_fd(int fd, const fs::path& path) {
  SF_CHECK(fsync(fd) == 0, exit_of_errno(errno, Exit::kIo), "cannot fsync {}: {}", path.string(), errno_text(errno));
}

void sync_dir(const fs::path& dir) {
  UniqueFd fd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  SF_CHECK(fd.valid(), exit_of_errno(errno, Exit::kCantCreate), "cannot open directory {}: {}", dir.string(),
           errno_text(errno));
  sync_fd(fd.get(), dir);
}

// A name that is new counts as well: it would become a part of the directory that it is made in.
void refuse_to_replace(const fs::path& given) {
  std::error_code ignored;
  const bool is_there = fs::exists(given, ignored);
  if (is_there && !fs::is_regular_file(given, ignored)) return;
  const fs::path path = end_of_links(given);
  fs::path dir = path.parent_path();
  while (!dir.empty() && !fs::exists(dir, ignored)) dir = dir.parent_path();
  for (const char* mark : {"manifest.json", "contract.json"})
    SF_CHECK(!fs::exists(dir / mark, ignored), Exit::kCantCreate,
             "{} is part of what was published there; choose another -o", given.string());
  SF_CHECK(!is_there || path.filename() != "metrics.jsonl", Exit::kCantCreate,
           "{} is part of what was published there; choose another -o", given.string());
}

void write_atomic(const fs::path& given, std::string_view text) {
  struct stat info {};
  if (stat(given.c_str(), &info) == 0 && !is_plain(info.st_mode)) return write_into(given, text);
  const fs::path path = fault("base.replace_links") ? given : end_of_links(given);
  fs::path dir = path.has_parent_path() ? path.parent_path() : fs::path(".");
  fs::path temporary = dir / fmt::format(".{}.tmp-{}", path.filename().string(), getpid());
  try {
    UniqueFd fd = create_file(temporary);
    write_all(fd.get(), text, path);
    sync_fd(fd.get(), path);
    fd.close(path.string());
    SF_CHECK(::rename(temporary.c_str(), path.c_str()) == 0, exit_of_errno(errno, Exit::kCantCreate),
             "cannot rename onto {}: {}", path.string(), errno_text(errno));
    sync_dir(dir);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

DirLock DirLock::acquire(const fs::path& dir, std::string_view who) {
  fs::path file = dir / ".lock";
  for (;;) {
    UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    SF_CHECK(fd.valid(), exit_of_errno(errno, Exit::kCantCreate), "cannot create {}: {}", file.string(),
             errno_text(errno));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      std::string owner = read_file(file, 4096);
      fail(Exit::kCantCreate, "{} is in use by {}; choose another -o, or wait until that run ends", dir.string(),
           owner.empty() ? "another run" : owner);
    }
    // The previous owner may have removed the file between our open and our lock: then the lock guards nothing.
    struct stat ours {
    }, now{};
    if (fstat(fd.get(), &ours) != 0 || stat(file.c_str(), &now) != 0 || ours.st_ino != now.st_ino) continue;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    DirLock lock(std::move(fd), file);  // from here on a failure removes the file
    SF_CHECK(ftruncate(lock.fd_.get(), 0) == 0, Exit::kIo, "cannot truncate {}: {}", file.string(), errno_text(errno));
    write_all(lock.fd_.get(), fmt::format("{} (pid {} on {})", who, getpid(), host), file);
    return lock;
  }
}

DirLock::~DirLock() {
  if (fd_.valid()) ::unlink(file_.c_str());
}

}  // namespace sf
