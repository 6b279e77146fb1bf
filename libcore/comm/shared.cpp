// SPDX-License-Identifier: Apache-2.0
#include "comm/shared.h"

#include <immintrin.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "base/fault.h"

namespace sf::comm {
namespace {

// A waiter that spins longer takes the core from the peer it waits for.
constexpr int kSpins = 64;
// How often a sleeping rank asks the system whether its peers still live; death is reported within twice this.
constexpr Seconds kLook{0.1};

}  // namespace

SharedGroup::SharedGroup(std::shared_ptr<shm::Region> region, int rank, std::string_view kind)
    : region_(std::move(region)), rank_(rank), world_(region_->world()), kind_(kind) {
  peers_.resize(static_cast<size_t>(world_));
  shm::RankSlot& slot = region_->slot(rank_);
  slot.pid.store(getpid());
  slot.since_ns.store(shm::now_ns());
  slot.tag.store("start");
  shm::Life absent = shm::Life::kAbsent;
  SF_CHECK(slot.life.compare_exchange_strong(absent, shm::Life::kAlive), Exit::kSoftware,
           "rank {} of this group exists already", rank_);
}

SharedGroup::~SharedGroup() {
  if (std::uncaught_exceptions() > 0) {
    shm::end_rank(*region_, rank_, shm::Life::kFailed, "an error");
  } else {
    shm::end_rank(*region_, rank_, shm::Life::kLeft, "");
  }
}

void SharedGroup::abandon(std::string_view reason) {
  shm::end_rank(*region_, rank_, shm::Life::kFailed, reason);
}

void SharedGroup::give_up(Exit code, const std::string& why) {
  abandon(why);
  throw Error(code, why);
}

void SharedGroup::announce(uint64_t digest, bool present) {
  shm::Announced& mine = region_->slot(rank_).announced[parity_];
  mine.digest.store(digest, std::memory_order_relaxed);
  mine.present.store(present ? 1 : 0, std::memory_order_relaxed);
}

void SharedGroup::meet(const Call& call) {
  shm::Control& control = region_->control();
  if (control.culprit.load() != 0) look_after_peers(false, call);
  uint32_t generation = control.generation.load(std::memory_order_acquire);
  if (control.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(world_)) {
    control.arrived.store(0, std::memory_order_relaxed);
    control.generation.store(generation + 1);
    if (control.sleepers.load() > 0) shm::wake_all(*region_);
  } else {
    double start = monotonic_s();
    wait_for_generation(generation, call);
    traffic_.seconds_waiting += monotonic_s() - start;
  }
  compare_announcements();
}

bool SharedGroup::wait_for_generation(uint32_t generation, const Call& call) {
  shm::Control& control = region_->control();
  auto passed = [&] { return control.generation.load() != generation; };
  for (int i = 0; i < kSpins; ++i) {
    if (passed()) return true;
    _mm_pause();
  }
  bool ask_system = false;
  while (!passed()) {
    if (!fault("comm.deaf")) look_after_peers(ask_system, call);
    if (call.deadline.passed() && !passed()) {
      give_up(Exit::kUnavailable, fmt::format("rank {} gave up waiting in {}: deadline passed; {}", rank_, call.tag,
                                              shm::state_text(*region_)));
    }
    double start = monotonic_s();
    control.sleepers.fetch_add(1);
    shm::sleep_on(control.generation, generation, std::min(kLook, call.deadline.left()));
    control.sleepers.fetch_sub(1);
    ask_system = monotonic_s() - start > 0.5 * kLook.count();
  }
  return true;
}

// Throws if the barrier can no longer complete. The first to go names the cause, on every rank alike.
void SharedGroup::look_after_peers(bool ask_system, const Call& call) {
  shm::Control& control = region_->control();
  uint32_t generation = control.generation.load();
  int gone = -1;
  for (int peer = 0; peer < world_ && gone < 0; ++peer) {
    if (peer == rank_) continue;
    if (ask_system && process_is_gone(peer)) shm::end_rank(*region_, peer, shm::Life::kDead, "");
    shm::Life life = region_->slot(peer).life.load();
    if (life != shm::Life::kAlive && life != shm::Life::kAbsent) gone = peer;
  }
  uint32_t culprit = control.culprit.load();
  if (culprit != 0) gone = static_cast<int>(culprit) - 1;
  if (gone < 0 || control.generation.load() != generation) return;
  double since = static_cast<double>(shm::now_ns() - region_->slot(rank_).since_ns.load()) / 1e9;
  give_up(Exit::kUnavailable,
          fmt::format("{}; rank {} waits in {} since {:.1f} s", shm::end_text(*region_, gone), rank_, call.tag, since));
}

bool SharedGroup::process_is_gone(int rank) {
  const shm::RankSlot& slot = region_->slot(rank);
  pid_t pid = slot.pid.load();
  if (slot.life.load() != shm::Life::kAlive || pid == getpid()) return false;
  UniqueFd& peer = peers_[static_cast<size_t>(rank)];
  if (!peer.valid()) peer = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!peer.valid()) return errno == ESRCH && slot.life.load() == shm::Life::kAlive;
  pollfd wait{peer.get(), POLLIN, 0};
  // A peer that left in good order says so before it ends: look at its word once more after the system's.
  return poll(&wait, 1, 0) > 0 && slot.life.load() == shm::Life::kAlive;
}

void SharedGroup::compare_announcements() {
  uint64_t mine = region_->slot(rank_).announced[parity_].digest.load(std::memory_order_relaxed);
  for (int peer = 0; peer < world_; ++peer) {
    const shm::RankSlot& slot = region_->slot(peer);
    if (slot.announced[parity_].digest.load(std::memory_order_relaxed) == mine) continue;
    const shm::RankSlot& own = region_->slot(rank_);
    give_up(Exit::kSoftware,
            fmt::format("ranks disagree: rank {} is in {} (call {}), rank {} in {} (call {}), or in the "
                        "same call with other sizes",
                        rank_, own.tag.load(), own.calls.load(), peer, slot.tag.load(), slot.calls.load()));
  }
}

}  // namespace sf::comm
