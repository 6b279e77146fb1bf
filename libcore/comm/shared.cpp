// SPDX-License-Identifier: Apache-2.0
#include "comm/shared.h"

#include <fcntl.h>
#include <immintrin.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/fault.h"

namespace sf::comm {
namespace {

// Waking a sleeper costs tens of microseconds, more than a step's skew; but a waiter that spins where ranks share cores
// takes the core from the peer it waits for.
constexpr double kSpinS = 100e-6;
constexpr int kSpins = 64;  // between two looks at the clock, and all of it where cores are short

bool cores_for(int ranks) {
  cpu_set_t mine;
  return sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) >= ranks;
}
// How often a sleeping rank asks the system whether its peers still live; death is reported within twice this.
constexpr Seconds kLook{0.1};

}  // namespace

SharedGroup::SharedGroup(Place place, std::shared_ptr<ThreadParts> parts)
    : SteppedGroup(std::move(place)),
      parts_(std::move(parts)),
      spin_s_(cores_for(root_board().world()) ? kSpinS : 0),
      peers_(static_cast<size_t>(world_)) {}

void SharedGroup::announce(uint64_t digest, bool present, const Call&) {
  shm::Announced& mine = board_->slot(rank_).announced[parity_];
  mine.digest.store(digest, std::memory_order_relaxed);
  mine.present.store(present ? 1 : 0, std::memory_order_relaxed);
}

void SharedGroup::meet(const Pieces&, const Call& call) {
  shm::Control& control = board_->control();
  if (control.culprit.load() != 0 || root_board().control().culprit.load() != 0) stop_if_ended(call);
  uint32_t generation = control.generation.load(std::memory_order_acquire);
  board_->slot(rank_).arrived.store(generation + 1, std::memory_order_relaxed);
  if (control.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(world_)) {
    control.arrived.store(0, std::memory_order_relaxed);
    control.generation.store(generation + 1);
    if (control.sleepers.load() > 0) shm::wake_all(*board_);
  } else {
    double start = monotonic_s();
    wait_for_generation(generation, call);
    traffic_.seconds_waiting += monotonic_s() - start;
  }
  compare_announcements();
}

void SharedGroup::wait_for_generation(uint32_t generation, const Call& call) {
  shm::Control& control = board_->control();
  auto passed = [&] { return control.generation.load() != generation; };
  double spun = monotonic_s();
  do {
    for (int i = 0; i < kSpins; ++i) {
      if (passed()) return;
      _mm_pause();
    }
  } while (monotonic_s() - spun < spin_s_);
  bool ask_system = false;
  while (!passed()) {
    if (!fault("comm.deaf")) look_after_peers(ask_system, generation, call);
    if (call.deadline.passed() && !passed()) give_up_late(call);
    double start = monotonic_s();
    control.sleepers.fetch_add(1);
    shm::sleep_on(control.generation, generation, std::min(kLook, call.deadline.left()));
    control.sleepers.fetch_sub(1);
    ask_system = monotonic_s() - start > 0.5 * kLook.count();
  }
}

// Throws if the barrier that ends `generation` can no longer complete. A peer that passed it may have left since: how a
// peer ended is read first and the generation after it, for whoever leaves has counted itself before.
void SharedGroup::look_after_peers(bool ask_system, uint32_t generation, const Call& call) {
  for (int peer = 0; ask_system && peer < world_; ++peer) {
    if (peer != rank_ && process_is_gone(peer)) peer_ended(peer, shm::Life::kDead, "");
  }
  if (somebody_ended() && board_->control().generation.load() == generation) stop_if_ended(call);
}

bool SharedGroup::process_is_gone(int rank) {
  const shm::RankSlot &slot = board_->slot(rank), &root = root_board().slot(root_rank(rank));
  // Of a rank that has not joined, the supervisor would tell the end.
  bool orphan = shm::supervisor_is_gone(root_board()) && !fault("comm.orphan_waits");
  bool started = orphan || root.life.load() == shm::Life::kAlive;
  auto expected = [&] {
    shm::Life life = slot.life.load();
    return life == shm::Life::kAlive || (life == shm::Life::kAbsent && started);
  };
  pid_t pid = root.pid.load();
  if (!expected() || pid == getpid()) return false;
  if (pid == 0) return true;  // the supervisor ended before it started this one
  UniqueFd& peer = peers_[static_cast<size_t>(rank)];
  if (!peer.valid()) peer = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!peer.valid()) return errno == ESRCH && expected();
  pollfd wait{peer.get(), POLLIN, 0};
  // A peer that left in good order says so before it ends: look at its word once more after the system's.
  return poll(&wait, 1, 0) > 0 && expected();
}

void SharedGroup::compare_announcements() {
  uint64_t mine = board_->slot(rank_).announced[parity_].digest.load(std::memory_order_relaxed);
  for (int peer = 0; peer < world_; ++peer) {
    const shm::RankSlot& slot = board_->slot(peer);
    if (slot.announced[parity_].digest.load(std::memory_order_relaxed) == mine) continue;
    disagree(peer, slot.tag.load(), slot.calls.load());
  }
}

std::unique_ptr<Group> SharedGroup::make_part(int colour, const std::vector<int>& members, const Call& call) {
  ThreadParts::Part part = parts_ ? part_of_threads(colour, members.size()) : part_of_processes(members, call);
  if (members.size() == 1) return nullptr;
  return std::make_unique<SharedGroup>(part_place(std::move(part.region), members), std::move(part.parts));
}

ThreadParts::Part SharedGroup::part_of_threads(int colour, size_t members) {
  std::lock_guard lock(parts_->mutex);
  ThreadParts::Part& part = parts_->made[{traffic_.calls, colour}];
  if (!part.region)
    part = {shm::Region::anonymous(static_cast<int>(members), area_bytes()), std::make_shared<ThreadParts>()};
  return part;
}

// The first member makes a memory file; the others open it through /proc, so it has no name that could stay behind.
ThreadParts::Part SharedGroup::part_of_processes(const std::vector<int>& members, const Call& call) {
  bool makes = members.front() == rank_ && members.size() > 1;
  UniqueFd file(makes ? shm::create_control(static_cast<int>(members.size()), area_bytes()) : -1);
  auto world = static_cast<size_t>(world_);
  int mine = file.get();
  std::vector<int> files(world);
  std::vector<size_t> sizes(world, sizeof mine);
  all_gather(std::as_bytes(std::span(&mine, 1)), sizes, std::as_writable_bytes(std::span(files)), call);
  ThreadParts::Part part;
  if (members.size() > 1) {
    auto maker = static_cast<size_t>(members.front());
    std::string path = fmt::format("/proc/{}/fd/{}", board_->slot(members.front()).pid.load(), files[maker]);
    UniqueFd opened(open(path.c_str(), O_RDWR | O_CLOEXEC));
    SF_CHECK(opened.valid(), Exit::kOs, "cannot open the memory file of rank {} ({}): {}", root_rank(members.front()),
             path, errno_text(errno));
    part.region = shm::Region::map(opened.get());
  }
  barrier(call);  // all have it: the maker may close it
  return part;
}

}  // namespace sf::comm
