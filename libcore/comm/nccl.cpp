// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "comm/checks.h"

namespace sf::comm {
namespace {

constexpr int kSpins = 1000;  // polls of a stream before the wait starts to sleep
constexpr int kSleepUs = 20;

// One communicator with its stream: gathers and folds have one each.
struct Channel {
  void* comm = nullptr;
  void* stream = nullptr;
};

class NcclGroup : public Group {
 public:
  NcclGroup(const sf_collectives& api, std::unique_ptr<Group> control, const NcclOptions& options);
  ~NcclGroup() override;

  int rank() const override { return control_->rank(); }
  int world() const override { return control_->world(); }
  std::string_view kind() const override { return "nccl"; }
  using Group::all_gather;
  void all_gather(std::span<const GatherPart> parts, const Call& call) override;
  void reduce_fold(std::span<const float> gradient, bool present, std::span<const size_t> offsets, std::span<float> acc,
                   const Call& call) override;
  // Host memory: a handful of numbers and names, for which a launch would cost more than the copy.
  void all_reduce_sum(std::span<int64_t> values, const Call& call) override { counted().all_reduce_sum(values, call); }
  void broadcast(std::span<std::byte> bytes, int root, const Call& call) override {
    counted().broadcast(bytes, root, call);
  }
  std::vector<std::vector<std::byte>> all_to_all(const std::vector<std::span<const std::byte>>& to,
                                                 const Call& call) override {
    return counted().all_to_all(to, call);
  }
  void barrier(const Call& call) override { counted().barrier(call); }
  std::unique_ptr<Group> split(int colour, const Call& call) override {
    return std::make_unique<NcclGroup>(api_, counted().split(colour, call), options_);
  }
  Traffic traffic() const override;
  void abandon(std::string_view reason) override;
  std::string state_text() const override { return control_->state_text(); }

 private:
  Group& counted() {
    ++traffic_.calls;
    return *control_;
  }
  void join(Channel& channel);
  void check(int error, const char* what, const Call& call);
  std::vector<bool> agree(uint64_t digest, bool present, const Call& call);
  void gather_part(const GatherPart& part, const Call& call);
  void fold_fast(std::span<const float> gradient, bool present, size_t count, std::span<float> acc, const Call& call);
  void fold_piece(std::span<const float> gradient, const std::vector<bool>& present, std::span<const size_t> offsets,
                  std::span<float> acc, size_t step, const Call& call);
  void wait_for(const Channel& channel, const Call& call);
  float* staging(size_t bytes, const Call& call);

  const sf_collectives& api_;
  std::unique_ptr<Group> control_;
  NcclOptions options_;
  Channel gathers_, folds_;
  void* staging_ = nullptr;
  size_t staging_bytes_ = 0;
  bool broken_ = false;
  Traffic traffic_;
};

NcclGroup::NcclGroup(const sf_collectives& api, std::unique_ptr<Group> control, const NcclOptions& options)
    : api_(api), control_(std::move(control)), options_(options) {
  join(gathers_);
  join(folds_);
}

NcclGroup::~NcclGroup() {
  for (Channel* channel : {&gathers_, &folds_}) {
    if (channel->comm) broken_ ? api_.abort(channel->comm) : api_.leave(channel->comm);
    if (channel->stream) api_.free_stream(channel->stream);
  }
  if (staging_) api_.release(staging_);
}

void NcclGroup::join(Channel& channel) {
  Call call{"join NCCL", Deadline::after(Seconds(120))};
  std::array<char, SF_COLLECTIVES_ID_BYTES> id{};
  if (rank() == 0) check(api_.make_id(id.data()), "make an id", call);
  control_->broadcast(std::as_writable_bytes(std::span(id)), 0, call);
  check(api_.make_stream(&channel.stream), "make a stream", call);
  check(api_.join(&channel.comm, world(), id.data(), rank()), "join", call);
}

void NcclGroup::check(int error, const char* what, const Call& call) {
  if (error == 0) return;
  std::string why = fmt::format("rank {} cannot {} in {}: {}", rank(), what, call.tag, api_.error_text(error));
  abandon(why);
  fail(Exit::kUnavailable, "{}", why);
}

Traffic NcclGroup::traffic() const {
  Traffic sum = traffic_, host = control_->traffic();
  sum.bytes_sent += host.bytes_sent;
  sum.bytes_received += host.bytes_received;
  sum.seconds_waiting += host.seconds_waiting;
  return sum;
}

void NcclGroup::abandon(std::string_view reason) {
  broken_ = true;
  control_->abandon(reason);
}

// Polls, so that a deadline and the end of a peer are seen: NCCL itself would wait for ever.
void NcclGroup::wait_for(const Channel& channel, const Call& call) {
  double start = monotonic_s();
  for (int polls = 0;; ++polls) {
    int pending = api_.pending(channel.stream);
    check(pending < 0 ? -pending : 0, "go on", call);
    if (pending == 0) break;
    if (polls < kSpins) continue;
    usleep(kSleepUs);
    check(api_.async_error(channel.comm), "go on", call);
    if (!call.deadline.passed()) continue;
    std::string why = fmt::format("rank {} gave up waiting in {}: deadline passed; {}", rank(), call.tag, state_text());
    abandon(why);
    fail(Exit::kUnavailable, "{}", why);
  }
  traffic_.seconds_waiting += monotonic_s() - start;
}

// Heads by the control group: a wrong order of calls ends there, named, before NCCL would hang in it.
std::vector<bool> NcclGroup::agree(uint64_t digest, bool present, const Call& call) {
  ++traffic_.calls;
  auto ranks = static_cast<size_t>(world());
  std::array<uint64_t, 2> own{digest, present ? 1u : 0u};
  std::vector<std::array<uint64_t, 2>> heads(ranks);
  std::vector<size_t> sizes(ranks, sizeof own);
  control_->all_gather(std::as_bytes(std::span(own)), sizes, std::as_writable_bytes(std::span(heads)), call);
  std::vector<bool> all(ranks);
  for (size_t peer = 0; peer < ranks; ++peer) {
    if (heads[peer][0] != digest) {
      std::string why =
          fmt::format("ranks disagree: rank {} and rank {} are both in {}, with other sizes", rank(), peer, call.tag);
      abandon(why);
      fail(Exit::kSoftware, "{}", why);
    }
    all[peer] = heads[peer][1] != 0;
  }
  return all;
}

uint64_t digest_of(const char* operation, std::span<const size_t> sizes) {
  Xxh3 hash;
  hash.update(std::as_bytes(std::span(std::string_view(operation))));
  hash.update(std::as_bytes(sizes));
  return hash.digest();
}

void NcclGroup::all_gather(std::span<const GatherPart> parts, const Call& call) {
  std::vector<size_t> sizes;
  for (const GatherPart& part : parts) {
    check_part(part, rank(), world());
    sizes.insert(sizes.end(), part.sizes.begin(), part.sizes.end());
  }
  agree(digest_of("all_gather", sizes), true, call);
  check(api_.group_start(), "start", call);
  for (const GatherPart& part : parts) gather_part(part, call);
  check(api_.group_end(), "launch", call);
  wait_for(gathers_, call);
}

// Equal pieces are NCCL's all-gather; uneven ones are sent and received one by one, in the same launch.
void NcclGroup::gather_part(const GatherPart& part, const Call& call) {
  auto me = static_cast<size_t>(rank());
  bool equal = std::adjacent_find(part.sizes.begin(), part.sizes.end(), std::not_equal_to<>()) == part.sizes.end();
  if (equal && part.sizes[0] > 0) {
    check(api_.all_gather(part.mine.data(), part.into.data(), part.sizes[0], gathers_.comm, gathers_.stream), "gather",
          call);
    traffic_.bytes_sent += part.sizes[0];
    traffic_.bytes_received += part.into.size() - part.sizes[0];
    return;
  }
  size_t place = 0;
  for (size_t peer = 0; peer < part.sizes.size(); place += part.sizes[peer++]) {
    if (peer == me) {
      if (part.mine.data() != part.into.data() + place && !part.mine.empty())
        check(api_.copy(part.into.data() + place, part.mine.data(), part.mine.size(), gathers_.stream), "copy", call);
      continue;
    }
    auto other = static_cast<int>(peer);
    if (!part.mine.empty())
      check(api_.send(part.mine.data(), part.mine.size(), other, gathers_.comm, gathers_.stream), "send", call);
    if (part.sizes[peer] > 0)
      check(api_.receive(part.into.data() + place, part.sizes[peer], other, gathers_.comm, gathers_.stream), "receive",
            call);
    traffic_.bytes_sent += part.mine.size();
    traffic_.bytes_received += part.sizes[peer];
  }
}

void NcclGroup::reduce_fold(std::span<const float> gradient, bool mine_present, std::span<const size_t> offsets,
                            std::span<float> acc, const Call& call) {
  check_fold(gradient, mine_present, offsets, acc, rank(), world());
  std::vector<bool> present = agree(digest_of("reduce_fold", offsets), mine_present, call);
  size_t longest = 0, shortest = SIZE_MAX;
  for (size_t r = 0; r + 1 < offsets.size(); ++r) {
    longest = std::max(longest, offsets[r + 1] - offsets[r]);
    shortest = std::min(shortest, offsets[r + 1] - offsets[r]);
  }
  if (longest == 0) return;
  if (options_.fold == Fold::kFast && longest == shortest) return fold_fast(gradient, mine_present, longest, acc, call);
  size_t window = std::max<size_t>(1, options_.piece_bytes / sizeof(float));
  for (size_t step = 0; step * window < longest; ++step) fold_piece(gradient, present, offsets, acc, step, call);
}

void NcclGroup::fold_fast(std::span<const float> gradient, bool present, size_t count, std::span<float> acc,
                          const Call& call) {
  size_t whole = present ? 0 : count * static_cast<size_t>(world());  // an absent rank adds zeros
  float* sum = staging((count + whole) * sizeof(float), call);
  if (!present) check(api_.zero(sum + count, whole * sizeof(float), folds_.stream), "clear", call);
  const float* from = present ? gradient.data() : sum + count;
  check(api_.reduce_scatter_f32(from, sum, count, folds_.comm, folds_.stream), "reduce", call);
  check(api_.fold_add(acc.data(), sum, static_cast<int64_t>(count), folds_.stream), "add", call);
  wait_for(folds_, call);
  traffic_.bytes_sent += count * sizeof(float) * static_cast<size_t>(world() - 1);
  traffic_.bytes_received += count * sizeof(float) * static_cast<size_t>(world() - 1);
}

// Window `step` of every interval: sent to its owner, who adds what arrived in rank order.
void NcclGroup::fold_piece(std::span<const float> gradient, const std::vector<bool>& present,
                           std::span<const size_t> offsets, std::span<float> acc, size_t step, const Call& call) {
  size_t window = std::max<size_t>(1, options_.piece_bytes / sizeof(float)), me = static_cast<size_t>(rank());
  auto clipped = [&](size_t owner) {
    size_t size = offsets[owner + 1] - offsets[owner], lo = std::min(size, step * window);
    return std::pair(lo, std::min(size, lo + window) - lo);
  };
  auto [lo, count] = clipped(me);
  float* arrived = staging(std::max<size_t>(1, count * present.size()) * sizeof(float), call);
  check(api_.group_start(), "start", call);
  for (size_t peer = 0; peer < present.size(); ++peer) {
    if (peer == me) continue;
    auto [from, length] = clipped(peer);
    auto other = static_cast<int>(peer);
    if (present[me] && length > 0)
      check(
          api_.send(gradient.data() + offsets[peer] + from, length * sizeof(float), other, folds_.comm, folds_.stream),
          "send", call);
    if (present[peer] && count > 0)
      check(api_.receive(arrived + peer * count, count * sizeof(float), other, folds_.comm, folds_.stream), "receive",
            call);
    traffic_.bytes_sent += present[me] ? length * sizeof(float) : 0;
    traffic_.bytes_received += present[peer] ? count * sizeof(float) : 0;
  }
  check(api_.group_end(), "launch", call);
  for (size_t turn = 0; turn < present.size() && count > 0; ++turn) {
    size_t peer = fault("comm.nccl_own_first") ? (turn + me) % present.size() : turn;
    if (!present[peer]) continue;
    const float* from = peer == me ? gradient.data() + offsets[me] + lo : arrived + peer * count;
    check(api_.fold_add(acc.data() + lo, from, static_cast<int64_t>(count), folds_.stream), "add", call);
  }
  wait_for(folds_, call);
}

float* NcclGroup::staging(size_t bytes, const Call& call) {
  if (bytes > staging_bytes_) {
    if (staging_) check(api_.release(staging_), "release memory", call);
    staging_ = nullptr;
    staging_bytes_ = 0;
    check(api_.allocate(&staging_, bytes), "allocate memory", call);
    staging_bytes_ = bytes;
  }
  return static_cast<float*>(staging_);
}

}  // namespace

std::unique_ptr<Group> make_nccl(const sf_collectives& api, std::unique_ptr<Group> control,
                                 const NcclOptions& options) {
  return std::make_unique<NcclGroup>(api, std::move(control), options);
}

}  // namespace sf::comm
