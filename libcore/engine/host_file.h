// SPDX-License-Identifier: Apache-2.0
// One read-only copy of some bytes for all ranks of a host: a node-local file without a name, mapped by each of them.
// Nothing is left behind, however they end.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "comm/group.h"

namespace sf::engine {

class HostFile {
 public:
  // Every rank calls it. The lowest rank of each host makes the file in `dir`, all its space taken at once. Errors on
  // every rank: kCantCreate (no such directory, no room), kConfig (`dir` is on a network file system).
  HostFile(comm::Group& group, uint64_t bytes, const std::filesystem::path& dir, const comm::Call& call);
  ~HostFile();
  HostFile(const HostFile&) = delete;

  // Which part of the filling is this rank's: place among the ranks of its host, and their number.
  int place() const { return place_; }
  int mates() const { return mates_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  // Every rank calls it, once its part is written: from now on a write ends the process (SIGSEGV).
  void seal(comm::Group& group, const comm::Call& call);

 private:
  int open_first(const std::filesystem::path& dir) const;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int place_ = 0, mates_ = 1;
};

}  // namespace sf::engine
