// SPDX-License-Identifier: Apache-2.0
// One read-only copy of some bytes for all ranks of a host: the file they lie
// in, mapped where it is, or a node-local file without a name, mapped by each
// of them. Nothing is left behind, however they end.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/dtype.h"
#include "comm/group.h"

namespace sf::engine {

// Values that a file holds already.
struct HostSource {
  std::filesystem::path file;
  uint64_t offset = 0;  // bytes
  Dtype type = Dtype::kF32;
  std::string digest;   // xxh3 of them, 16 hex digits; empty: not known
  bool copied = false;  // even from storage of this host
};

class HostFile {
 public:
  // Every rank calls these. The lowest rank of each host makes the file in
  // `dir`, all its space taken at once. Errors on every rank: kCantCreate (no
  // such directory), kIo (no room), kConfig (`dir` is on a network file
  // system).
  //
  // To be filled: each rank of a host writes its part of bytes(), and all call
  // seal().
  HostFile(comm::Group& group, uint64_t bytes, const std::filesystem::path& dir, const comm::Call& call);
  // Filled from `source` and sealed: mapped where it lies if that is storage of
  // this host, else copied into `dir` in pieces, each byte once a host. Ranks
  // of a host must see one file (device, inode, size), and all hosts the same
  // bytes, those of source.digest if it is known: kData naming what differs.
  HostFile(comm::Group& group, uint64_t bytes, const HostSource& source, const std::filesystem::path& dir,
           const comm::Call& call);
  ~HostFile();
  HostFile(const HostFile&) = delete;

  // Which part of the filling is this rank's: place among the ranks of its
  // host, and their number.
  int place() const { return place_; }
  int mates() const { return mates_; }
  bool is_copy() const { return copy_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  // Every rank calls it, once its part is written: from now on a write ends the
  // process (SIGSEGV).
  void seal(comm::Group& group, const comm::Call& call);

 private:
  struct Hello;
  void meet(comm::Group& group, const comm::Call& call);
  void make(comm::Group& group, const std::filesystem::path& dir, const comm::Call& call);
  void open_source(comm::Group& group, const HostSource& source, const comm::Call& call);
  void map(int fd, uint64_t offset, bool writable);
  void copy_part(int fd, const HostSource& source);
  void check_digest(comm::Group& group, const HostSource& source, const comm::Call& call);

  std::byte *data_ = nullptr, *mapped_ = nullptr;
  size_t size_ = 0, mapped_size_ = 0;
  int place_ = 0, mates_ = 1,
      leader_ = 0;  // leader: the lowest rank of this host
  uint64_t host_ = 0;
  bool copy_ = true;
};

// Is a file system of this kind (statfs.f_type) shared with other hosts, so
// that it holds no copy of this host's own?
bool is_network_file_system(long kind);

}  // namespace sf::engine
