// SPDX-License-Identifier: Apache-2.0
#include "comm/network.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/file.h"

namespace sf::comm {
namespace {

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

// A value another rank puts, with an end to the wait when a rank ends.
std::string await(const Meeting& meeting, const std::string& key, Deadline deadline) {
  while (true) {
    if (auto value = meeting.find(key)) return {value->begin(), value->end()};
    uint32_t culprit = meeting.board()->control().culprit.load();
    SF_CHECK(culprit == 0, Exit::kUnavailable, "{}; while ranks were meeting",
             shm::end_text(*meeting.board(), static_cast<int>(culprit) - 1));
    SF_CHECK(!deadline.passed(), Exit::kUnavailable, "no word ({}) from the other ranks before the deadline", key);
    meeting.wait_change(Seconds(0.05));
  }
}

// Equal for two processes that can open each other's files through /proc.
std::string host_identity() {
  std::error_code error;
  std::string processes = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  return fmt::format("{} {} {}", read_file("/proc/sys/kernel/random/boot_id"), processes, getuid());
}

}  // namespace

void check_local_ranks(Meeting& meeting, int rank, int world, int local_rank, Deadline deadline) {
  meeting.put(fmt::format("local rank {}", rank), bytes_of(fmt::format("{} {}", local_rank, host_identity())));
  std::map<std::string, int> seen;
  for (int peer = 0; peer < world; ++peer) {
    auto [first, fresh] = seen.emplace(await(meeting, fmt::format("local rank {}", peer), deadline), peer);
    SF_CHECK(fresh, Exit::kUsage, "ranks {} and {} are on one host, and LOCAL_RANK is {} for both", first->second, peer,
             first->first.substr(0, first->first.find(' ')));
  }
}

bool on_one_host(Meeting& meeting, int rank, int world, Deadline deadline) {
  meeting.put(fmt::format("host {}", rank), bytes_of(host_identity()));
  bool same = true;
  for (int peer = 0; peer < world; ++peer) {
    same = await(meeting, fmt::format("host {}", peer), deadline) == await(meeting, "host 0", deadline) && same;
  }
  return same;
}

std::unique_ptr<Group> make_shm(Meeting& meeting, int rank, int world, Deadline deadline) {
  UniqueFd file;
  if (rank == 0) {
    file = UniqueFd(shm::create_control(world));
    meeting.put("memory file", bytes_of(fmt::format("/proc/{}/fd/{}", getpid(), file.get())));
  } else {
    std::string path = await(meeting, "memory file", deadline);
    file = UniqueFd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    SF_CHECK(file.valid(), Exit::kOs, "cannot open the ranks' memory file {}: {}; use comm.group = \"gloo\"", path,
             errno_text(errno));
  }
  std::unique_ptr<Group> group = make_shm(file.get(), rank, world);
  group->barrier({"start", deadline});  // all have it: rank 0 may close it
  return group;
}

}  // namespace sf::comm
