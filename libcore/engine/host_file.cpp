// SPDX-License-Identifier: Apache-2.0
#include "engine/host_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"

namespace sf::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPiece = size_t{8} << 20;      // bytes copied at once
constexpr double kSlowestBytesPerS = 50 << 20;  // of storage that is read before a deadline

// NFS, SMB, SMB2, CIFS, AFS, Ceph, 9P, FUSE (sshfs and the like), Lustre, GPFS,
// BeeGFS, OCFS2, GFS2
constexpr std::array<long, 13> kNetwork{0x6969,     0x517B,     0xFE534D42, 0xFF534D42, 0x5346414F,
                                        0x00C36400, 0x01021997, 0x65735546, 0x0BD00BD0, 0x47504653,
                                        0x19830326, 0x7461636F, 0x01161970};

// Two ranks are on one host if they could open each other's files through
// /proc: same boot, same process ids.
uint64_t host_of_this_process() {
  std::error_code ignored;
  std::string boot = read_file("/proc/sys/kernel/random/boot_id");
  return xxh3_64(boot + fs::read_symlink("/proc/self/ns/pid", ignored).string());
}

bool is_network(const fs::path& path) {
  struct statfs info {};
  return statfs(path.c_str(), &info) == 0 && is_network_file_system(static_cast<long>(info.f_type));
}

uint64_t free_bytes(const fs::path& dir) {
  struct statvfs info {};
  return statvfs(dir.c_str(), &info) == 0 ? uint64_t{info.f_bavail} * info.f_frsize : 0;
}

comm::Call with_time_for(uint64_t bytes, const comm::Call& call) {
  return {call.tag, Deadline::after(call.deadline.left() + Seconds(static_cast<double>(bytes) / kSlowestBytesPerS))};
}

// A file without a name, all its space taken: a full disk must not end a later
// write by SIGBUS. -1 and errno.
int open_nameless(const fs::path& dir, size_t size) {
  int fd = open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {  // a file system that has none
    std::string path = (dir / "shardforge-table.XXXXXX").string();
    fd = mkostemp(path.data(), O_CLOEXEC);
    if (fd >= 0) unlink(path.c_str());
  }
  if (fd < 0) return -1;
  int error = free_bytes(dir) < size ? ENOSPC : posix_fallocate(fd, 0, static_cast<off_t>(std::max<size_t>(size, 1)));
  if (error == 0) return fd;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

bool is_network_file_system(long kind) {
  return std::find(kNetwork.begin(), kNetwork.end(), kind) != kNetwork.end();
}

// What a rank tells the others. Zeros but for what the step asks for.
struct HostFile::Hello {
  uint64_t host = 0;
  int64_t pid = 0, fd = -1, status = 0, error = 0, network = 0;
  uint64_t device = 0, inode = 0, bytes = 0, digest = 0;

  static std::vector<Hello> tell(comm::Group& group, const Hello& mine, const comm::Call& call) {
    std::vector<Hello> all(static_cast<size_t>(group.world()));
    std::vector<size_t> sizes(all.size(), sizeof(Hello));
    group.all_gather(std::as_bytes(std::span(&mine, 1)), sizes, std::as_writable_bytes(std::span(all)), call);
    return all;
  }
  // Throws on every rank what went wrong on the first that failed.
  static void check(const std::vector<Hello>& all, std::string_view doing) {
    for (size_t r = 0; r < all.size(); ++r)
      if (all[r].status != 0)
        fail(static_cast<Exit>(all[r].status), "rank {} could not {}: {}", r, doing,
             errno_text(static_cast<int>(all[r].error)));
  }
};

HostFile::HostFile(comm::Group& group, uint64_t bytes, const fs::path& dir, const comm::Call& call) : size_(bytes) {
  meet(group, call);
  make(group, dir, call);
}

HostFile::HostFile(comm::Group& group, uint64_t bytes, const HostSource& source, const fs::path& dir,
                   const comm::Call& call)
    : size_(bytes) {
  meet(group, call);
  open_source(group, source, call);
  if (copy_) {
    UniqueFd fd(open(source.file.c_str(), O_RDONLY | O_CLOEXEC));
    make(group, dir, call);
    Hello mine;
    try {
      copy_part(fd.get(), source);
    } catch (const Error& error) {
      mine.status = static_cast<int64_t>(error.code());
      mine.error = EIO;
    }
    Hello::check(Hello::tell(group, mine, with_time_for(size_, call)), fmt::format("read {}", source.file.string()));
  }
  seal(group, call);
  check_digest(group, source, with_time_for(size_, call));
}

HostFile::~HostFile() {
  if (mapped_) munmap(mapped_, mapped_size_);
}

void HostFile::meet(comm::Group& group, const comm::Call& call) {
  host_ = host_of_this_process();
  std::vector<Hello> all = Hello::tell(group, {.host = host_}, call);
  mates_ = 0;
  for (int r = group.world(); r-- > 0;) {
    if (all[static_cast<size_t>(r)].host != host_) continue;
    leader_ = r;
    ++mates_;
    place_ += r < group.rank();
  }
}

// The leader keeps its file open until all have mapped it.
void HostFile::make(comm::Group& group, const fs::path& dir, const comm::Call& call) {
  Hello mine{.host = host_, .pid = getpid(), .network = is_network(dir), .bytes = free_bytes(dir)};
  UniqueFd fd;
  if (leader_ == group.rank() && !mine.network) {
    fd = UniqueFd(open_nameless(dir, size_));
    mine.fd = fd.get();
    mine.error = fd.valid() ? 0 : errno;
    if (!fd.valid()) mine.status = static_cast<int64_t>(exit_of_errno(errno, Exit::kCantCreate));
  }
  std::vector<Hello> all = Hello::tell(group, mine, with_time_for(size_, call));
  for (size_t r = 0; r < all.size(); ++r)
    SF_CHECK(all[r].network == 0, Exit::kConfig,
             "{} is on a network file system (rank {}); one copy of a table "
             "for a host needs a directory of its own "
             "(shard.host_dir)",
             dir.string(), r);
  Hello::check(all, fmt::format("make a file in {} (wanted {} bytes, {} free)", dir.string(), size_, mine.bytes));
  const Hello& leader = all[static_cast<size_t>(leader_)];
  if (leader_ != group.rank())
    fd = UniqueFd(open(fmt::format("/proc/{}/fd/{}", leader.pid, leader.fd).c_str(), O_RDWR | O_CLOEXEC));
  mine = {};
  try {
    map(fd.get(), 0, true);
  } catch (const Error& error) {
    mine.status = static_cast<int64_t>(error.code());
    mine.error = errno;
  }
  Hello::check(Hello::tell(group, mine, call), "map the table");
}

void HostFile::open_source(comm::Group& group, const HostSource& source, const comm::Call& call) {
  UniqueFd fd(open(source.file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  Hello mine{.host = host_, .network = source.copied || is_network(source.file)};
  if (fstat(fd.get(), &info) == 0) {
    mine.device = info.st_dev, mine.inode = info.st_ino, mine.bytes = static_cast<uint64_t>(info.st_size);
  } else {
    mine.status = static_cast<int64_t>(Exit::kNoInput);
    mine.error = errno;
  }
  std::vector<Hello> all = Hello::tell(group, mine, call);
  Hello::check(all, fmt::format("open {}", source.file.string()));
  copy_ = false;
  for (size_t r = 0; r < all.size(); ++r) {
    SF_CHECK(source.offset + size_ <= all[r].bytes, Exit::kData,
             "{} has {} bytes on rank {}, {} wanted: it is truncated", source.file.string(), all[r].bytes, r,
             source.offset + size_);
    const Hello& first = all[static_cast<size_t>(leader_)];
    bool same = all[r].device == first.device && all[r].inode == first.inode && all[r].bytes == first.bytes;
    SF_CHECK(all[r].host != host_ || same, Exit::kData,
             "ranks {} and {} are on one host and see two files as {} (inodes "
             "{} and {})",
             leader_, r, source.file.string(), first.inode, all[r].inode);
    copy_ |= all[r].network != 0;
  }
  Hello mapped;
  try {
    if (!copy_) map(fd.get(), source.offset, false);
  } catch (const Error& error) {
    mapped.status = static_cast<int64_t>(error.code());
    mapped.error = errno;
  }
  Hello::check(Hello::tell(group, mapped, call), fmt::format("map {}", source.file.string()));
}

void HostFile::map(int fd, uint64_t offset, bool writable) {
  if (size_ == 0) return;  // nothing can be mapped, and nothing is wanted
  uint64_t begin = offset / static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  mapped_size_ = size_ + (offset - begin);
  int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* at = mmap(nullptr, mapped_size_, protection, MAP_SHARED, fd, static_cast<off_t>(begin));
  SF_CHECK(at != MAP_FAILED, Exit::kOs, "cannot map a table: {}", errno_text(errno));
  mapped_ = static_cast<std::byte*>(at);
  data_ = mapped_ + (offset - begin);
}

// Straight into the mapping: no buffer, and each byte is read once a host.
void HostFile::copy_part(int fd, const HostSource& source) {
  size_t end = size_ * static_cast<size_t>(place_ + 1) / static_cast<size_t>(mates_);
  for (size_t at = size_ * static_cast<size_t>(place_) / static_cast<size_t>(mates_); at < end;) {
    size_t count = std::min(kPiece, end - at);
    pread_exact(fd, bytes().subspan(at, count), source.offset + at, source.file);
    at += count;
  }
}

// One rank of each host reads its host's copy as the others will see it.
void HostFile::check_digest(comm::Group& group, const HostSource& source, const comm::Call& call) {
  Hello mine{.host = host_};
  if (leader_ == group.rank()) mine.digest = xxh3_64(std::span<const std::byte>(bytes()));
  std::vector<Hello> all = Hello::tell(group, mine, call);
  for (size_t r = 0; r < all.size(); ++r) {
    bool leads = std::none_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(r),
                              [&](const Hello& lower) { return lower.host == all[r].host; });
    if (!leads || fault("engine.any_host_bytes")) continue;
    std::string wanted = source.digest.empty() ? hex64(all[0].digest) : source.digest;
    SF_CHECK(hex64(all[r].digest) == wanted, Exit::kData,
             "{}: rank {} sees a table of digest {}, wanted {}; every host "
             "needs the same files, as they were published",
             source.file.string(), r, hex64(all[r].digest), wanted);
  }
}

void HostFile::seal(comm::Group& group, const comm::Call& call) {
  group.barrier(call);
  if (fault("engine.host_writable") || !mapped_) return;
  SF_CHECK(mprotect(mapped_, mapped_size_, PROT_READ) == 0, Exit::kOs, "cannot protect a table: {}", errno_text(errno));
}

}  // namespace sf::engine
