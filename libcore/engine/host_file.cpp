// SPDX-License-Identifier: Apache-2.0
#include "engine/host_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"

namespace sf::engine {
namespace {

namespace fs = std::filesystem;

// Two ranks are on one host if they could open each other's files through /proc: same boot, same process ids.
uint64_t host_of_this_process() {
  std::error_code ignored;
  std::string boot = read_file("/proc/sys/kernel/random/boot_id");
  return xxh3_64(boot + fs::read_symlink("/proc/self/ns/pid", ignored).string());
}

bool is_network(const fs::path& dir) {
  struct statfs info {};
  if (statfs(dir.c_str(), &info) != 0) return false;
  constexpr std::array<long, 5> kNetwork{0x6969, 0x0BD00BD0, 0xFF534D42L, 0x517B,
                                         0x65735546};  // NFS Lustre CIFS SMB FUSE
  return std::find(kNetwork.begin(), kNetwork.end(), static_cast<long>(info.f_type)) != kNetwork.end();
}

// What a rank tells the others.
struct Hello {
  uint64_t host = 0;
  int64_t pid = 0, fd = -1, status = 0, error = 0;
};

std::vector<Hello> tell_all(comm::Group& group, const Hello& mine, const comm::Call& call) {
  std::vector<Hello> all(static_cast<size_t>(group.world()));
  std::vector<size_t> sizes(all.size(), sizeof(Hello));
  group.all_gather(std::as_bytes(std::span(&mine, 1)), sizes, std::as_writable_bytes(std::span(all)), call);
  return all;
}

// Throws on every rank what went wrong on the first that failed.
void check_all(const std::vector<Hello>& all, std::string_view doing, const fs::path& dir) {
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].status == 0) continue;
    SF_CHECK(all[r].error != 0, Exit::kConfig,
             "{} is on a network file system; one copy of a table for a host needs a directory of its own "
             "(shard.host_dir)",
             dir.string());
    fail(static_cast<Exit>(all[r].status), "rank {} could not {} in {}: {}", r, doing, dir.string(),
         std::strerror(static_cast<int>(all[r].error)));
  }
}

}  // namespace

HostFile::HostFile(comm::Group& group, uint64_t bytes, const fs::path& dir, const comm::Call& call) : size_(bytes) {
  Hello mine{.host = host_of_this_process(), .pid = getpid()};
  std::vector<Hello> all = tell_all(group, mine, call);
  auto rank = static_cast<size_t>(group.rank());
  size_t first = rank;
  mates_ = 0;
  for (size_t r = all.size(); r-- > 0;) {
    if (all[r].host != mine.host) continue;
    first = r;
    ++mates_;
    place_ += r < rank;
  }
  int fd = -1;
  if (first == rank) {
    fd = open_first(dir);
    int error = errno;
    if (fd < 0) {
      mine.error = is_network(dir) ? 0 : error;
      mine.status = static_cast<int64_t>(is_network(dir) ? Exit::kConfig : Exit::kCantCreate);
    }
  }
  mine.fd = fd;
  all = tell_all(group, mine, call);
  check_all(all, "make a file", dir);
  if (first != rank) {
    std::string path = "/proc/" + std::to_string(all[first].pid) + "/fd/" + std::to_string(all[first].fd);
    fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  }
  void* mapped = fd < 0 ? MAP_FAILED : mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    mine.status = static_cast<int64_t>(Exit::kOs);
    mine.error = errno;
  } else {
    data_ = static_cast<std::byte*>(mapped);
  }
  all = tell_all(group, mine, call);  // and the first keeps its file open until all have mapped it
  if (fd >= 0) close(fd);
  if (std::any_of(all.begin(), all.end(), [](const Hello& one) { return one.status != 0; }) && data_)
    munmap(data_, size_);
  check_all(all, "map the table", dir);
}

HostFile::~HostFile() {
  if (data_) munmap(data_, size_);
}

int HostFile::open_first(const fs::path& dir) const {
  if (is_network(dir)) return -1;
  int fd = open(dir.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) {  // a file system without files that have no name
    std::string path = (dir / "shardforge-table.XXXXXX").string();
    fd = mkostemp(path.data(), O_CLOEXEC);
    if (fd >= 0) unlink(path.c_str());
  }
  if (fd < 0) return -1;
  // Taken now: a full disk must not end a later write by SIGBUS.
  int error = posix_fallocate(fd, 0, static_cast<off_t>(std::max<size_t>(size_, 1)));
  if (error == 0) return fd;
  close(fd);
  errno = error;
  return -1;
}

void HostFile::seal(comm::Group& group, const comm::Call& call) {
  group.barrier(call);
  if (fault("engine.host_writable")) return;
  SF_CHECK(mprotect(data_, size_, PROT_READ) == 0, Exit::kOs, "cannot protect a table: {}", std::strerror(errno));
}

}  // namespace sf::engine
