// SPDX-License-Identifier: Apache-2.0
// The one file that knows c10d. Everything is an exchange of bytes by all-to-all; nothing is computed by Gloo.
#define USE_C10D_GLOO
// The header below registers operators; it is the price of this file alone.
#undef TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/fault.h"
#include "comm/checks.h"
#include "comm/network.h"
#include "comm/stepped.h"

namespace sf::comm {
namespace {

// Bytes a rank gives away in one step. A step costs a round trip; memory is bounded by twice this.
constexpr size_t kAreaBytes = size_t{4} << 20;
constexpr Seconds kLook{0.1};
// How long a broken connection waits for the word of who ended.
constexpr Seconds kWord{2.0};
// Gloo's own patience must exceed every deadline of ours: ours name who is late.
constexpr std::chrono::hours kNever{24 * 365};

// The meeting's values as c10d's store. Gloo puts each rank's addresses there.
class MeetingStore : public c10d::Store {
 public:
  MeetingStore(std::shared_ptr<Meeting> meeting, std::string prefix)
      : meeting_(std::move(meeting)), prefix_(std::move(prefix)) {}
  c10::intrusive_ptr<Store> clone() override { return c10::make_intrusive<MeetingStore>(meeting_, prefix_); }
  using Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override { meeting_->put(prefix_ + key, value); }
  std::vector<uint8_t> get(const std::string& key) override {
    wait({key}, getTimeout());
    return *meeting_->find(prefix_ + key);
  }
  bool check(const std::vector<std::string>& keys) override {
    return std::all_of(keys.begin(), keys.end(),
                       [&](const std::string& key) { return meeting_->find(prefix_ + key).has_value(); });
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    Deadline deadline = Deadline::after_ms(timeout.count());
    while (!check(keys)) {
      const shm::Region& board = *meeting_->board();
      uint32_t culprit = board.control().culprit.load();
      SF_CHECK(culprit == 0, Exit::kUnavailable, "{}; while ranks were connecting",
               shm::end_text(board, static_cast<int>(culprit) - 1));
      SF_CHECK(!deadline.passed(), Exit::kUnavailable, "not every rank connected before the deadline; {}",
               in_one_line(shm::state_text(board)));
      meeting_->wait_change(Seconds(0.05));
    }
  }
  int64_t add(const std::string&, int64_t) override { fail(Exit::kSoftware, "Gloo counts in the store"); }
  bool deleteKey(const std::string&) override { return false; }
  int64_t getNumKeys() override { return 0; }

 private:
  std::shared_ptr<Meeting> meeting_;
  std::string prefix_;
};

// Told by Gloo's thread when an exchange has ended, well or not.
struct Ended {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

struct Head {
  uint64_t digest = 0, calls = 0;
  uint32_t present = 0;
  std::array<char, 108> tag{};
};

class GlooGroup : public SteppedGroup {
 public:
  GlooGroup(std::shared_ptr<Meeting> meeting, Place place, std::string prefix, Deadline deadline)
      : SteppedGroup(std::move(place)),
        meeting_(std::move(meeting)),
        prefix_(std::move(prefix)),
        area_(kAreaBytes),
        heads_(static_cast<size_t>(world_)),
        at_(static_cast<size_t>(world_)) {
    auto left = std::chrono::milliseconds(std::max(1, deadline.left_ms()));
    auto options = c10d::ProcessGroupGloo::Options::create(left);
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(meeting_->address())};
    auto store = c10::make_intrusive<MeetingStore>(meeting_, prefix_);
    store->setTimeout(left);
    try {
      gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank_, world_, options);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail(Exit::kUnavailable, "rank {} cannot connect to the others from {}: {}", rank_, meeting_->address(),
           error.what());
    }
    gloo_->setTimeout(std::chrono::duration_cast<std::chrono::milliseconds>(kNever));
  }

  ~GlooGroup() override {
    // An exchange under way cannot be called back: its threads go with the process.
    if (broken_) gloo_.release();
  }

  void abandon(std::string_view reason) override {
    SteppedGroup::abandon(reason);
    broken_ = true;
    meeting_->tell_now();
  }

 protected:
  size_t area_bytes() const override { return area_.size(); }
  std::span<std::byte> mine() override { return area_; }
  void announce(uint64_t digest, bool present, const Call& call) override;
  bool present(int peer) const override { return heads_[static_cast<size_t>(peer)].present != 0; }
  void meet(const Pieces& pieces, const Call& call) override;
  const std::byte* from(int peer, const Pieces& pieces) const override {
    if (peer == rank_) return area_.data() + static_cast<size_t>(rank_) * pieces.window;
    return reinterpret_cast<const std::byte*>(received_.const_data_ptr<uint8_t>()) + at_[static_cast<size_t>(peer)];
  }
  void end_step() override {}
  std::unique_ptr<Group> make_part(int colour, const std::vector<int>& members, const Call& call) override {
    if (members.size() == 1) return nullptr;
    auto board = shm::Region::anonymous(static_cast<int>(members.size()), 4096);
    return std::make_unique<GlooGroup>(meeting_, part_place(board, members),
                                       fmt::format("{}{}.{} ", prefix_, traffic_.calls, colour), call.deadline);
  }

 private:
  at::Tensor exchange(at::Tensor given, std::vector<int64_t> give, std::vector<int64_t> take, const Call& call);
  void wait_for(c10d::Work& work, const Call& call);
  [[noreturn]] void broken_off(const std::string& what, const Call& call);

  std::shared_ptr<Meeting> meeting_;
  std::string prefix_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  std::vector<std::byte> area_;
  std::vector<Head> heads_;
  uint64_t announced_ = 0;  // the call the heads are of
  at::Tensor received_;
  std::vector<size_t> at_;  // where each peer's bytes begin in received_
  bool broken_ = false;
};

at::Tensor new_bytes(int64_t count) {
  return at::empty({count}, at::TensorOptions().dtype(at::kByte));
}

// Heads first: sizes are believed only when all ranks are known to be in the same call.
void GlooGroup::announce(uint64_t digest, bool present, const Call& call) {
  uint64_t calls = board_->slot(rank_).calls.load();
  if (calls == announced_) return;
  announced_ = calls;
  Head own{.digest = digest, .calls = calls, .present = present ? 1u : 0u};
  std::memcpy(own.tag.data(), call.tag.data(), std::min(call.tag.size(), own.tag.size() - 1));
  auto world = static_cast<int64_t>(world_);
  at::Tensor given = new_bytes(world * static_cast<int64_t>(sizeof own));
  for (int64_t r = 0; r < world; ++r)
    std::memcpy(given.mutable_data_ptr<uint8_t>() + static_cast<size_t>(r) * sizeof own, &own, sizeof own);
  std::vector<int64_t> counts(heads_.size(), sizeof own);
  at::Tensor taken = exchange(given, counts, counts, call);
  std::memcpy(heads_.data(), taken.const_data_ptr<uint8_t>(), heads_.size() * sizeof own);
  for (int peer = 0; peer < world_; ++peer) {
    Head& head = heads_[static_cast<size_t>(peer)];
    head.tag.back() = 0;
    if (head.digest != digest && !fault("comm.any_call")) disagree(peer, head.tag.data(), head.calls);
  }
}

void GlooGroup::meet(const Pieces& pieces, const Call& call) {
  if (!pieces.bytes) return;  // the heads were all there is to say
  std::vector<int64_t> give(at_.size(), 0), take(at_.size(), 0);
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    give[static_cast<size_t>(peer)] = static_cast<int64_t>(pieces.bytes(rank_, peer));
    take[static_cast<size_t>(peer)] = static_cast<int64_t>(pieces.bytes(peer, rank_));
  }
  at::Tensor given = new_bytes(std::accumulate(give.begin(), give.end(), int64_t{0}));
  size_t to = 0, from = 0;
  for (size_t peer = 0; peer < at_.size(); ++peer) {
    auto bytes = static_cast<size_t>(give[peer]);
    if (bytes > 0) std::memcpy(given.mutable_data_ptr<uint8_t>() + to, area_.data() + peer * pieces.window, bytes);
    to += bytes;
    at_[peer] = from;
    from += static_cast<size_t>(take[peer]);
  }
  received_ = exchange(given, give, take, call);
}

at::Tensor GlooGroup::exchange(at::Tensor given, std::vector<int64_t> give, std::vector<int64_t> take,
                               const Call& call) {
  stop_if_ended(call);
  at::Tensor taken = new_bytes(std::accumulate(take.begin(), take.end(), int64_t{0}));
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = gloo_->alltoall_base(taken, given, take, give);
  } catch (const std::exception& error) {
    broken_off(error.what(), call);
  }
  double start = monotonic_s();
  wait_for(*work, call);
  traffic_.seconds_waiting += monotonic_s() - start;
  return taken;
}

void GlooGroup::wait_for(c10d::Work& work, const Call& call) {
  auto ended = std::make_shared<Ended>();
  work.getFuture()->addCallback([ended](c10::ivalue::Future&) {
    std::lock_guard lock(ended->mutex);
    ended->done = true;
    ended->changed.notify_all();
  });
  std::unique_lock lock(ended->mutex);
  while (!ended->changed.wait_for(lock, std::min(kLook, call.deadline.left()), [&] { return ended->done; })) {
    lock.unlock();
    stop_if_ended(call);
    if (call.deadline.passed()) give_up_late(call);
    lock.lock();
  }
  lock.unlock();
  try {
    work.wait();
  } catch (const std::exception& error) {
    broken_off(error.what(), call);
  }
}

void GlooGroup::broken_off(const std::string& what, const Call& call) {
  for (Deadline patience = Deadline::after(kWord); !patience.passed();) {
    stop_if_ended(call);
    meeting_->wait_change(Seconds(0.05));
  }
  give_up(Exit::kUnavailable, fmt::format("rank {} lost a connection in {}, and nobody is known to have ended: {}",
                                          root_rank(rank_), call.tag, what.substr(0, what.find('\n'))));
}

}  // namespace

std::unique_ptr<Group> make_gloo(std::shared_ptr<Meeting> meeting, std::shared_ptr<shm::Region> board, int rank,
                                 Deadline deadline) {
  Place place{.board = std::move(board), .rank = rank, .kind = "gloo"};
  return std::make_unique<GlooGroup>(std::move(meeting), std::move(place), "gloo ", deadline);
}

}  // namespace sf::comm
