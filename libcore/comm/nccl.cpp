// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "comm/checks.h"

namespace sf::comm {
namespace {

constexpr int kSpins = 1000;  // polls of a stream before the wait starts to sleep
constexpr int kSleepUs = 20;
constexpr size_t kGivenPiece = size_t{1} << 16;  // elements of a gradient that is given by pieces

// One communicator with its stream: gathers and folds have one each.
struct Channel {
  void* comm = nullptr;
  void* stream = nullptr;
};

// A fold, whoever brings the gradient: give writes elements [from, from + count) of it to memory of the device.
struct Folded {
  bool present = false;
  std::span<const size_t> offsets;
  std::span<float> acc;
  std::function<void(size_t from, float* to, size_t count)> give;
};

// Memory of the device: what goes to each rank, what came from each, and the sum; a rank's lie `stride` elements apart.
struct Areas {
  float *given, *arrived, *sum;
  size_t stride;
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
  void reduce_given(const GiveGradient& give, bool present, std::span<const size_t> offsets, std::span<float> acc,
                    const Call& call) override;
  // By the control group: a handful of numbers and names, for which a launch would cost more than the copy.
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
  std::unique_ptr<Group> aside(const Call& call) override { return counted().aside(call); }
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
  void gather_window(std::span<const GatherPart> parts, const std::vector<size_t>& totals, size_t lo, const Call& call);
  void send_and_receive(const Channel& channel, size_t peer, std::span<const std::byte> to_it,
                        std::span<std::byte> from_it, const Call& call);
  void fold(const Folded& fold, const Call& call);
  void fold_window(const Folded& fold, const std::vector<bool>& present, size_t lo, size_t stride, const Call& call);
  void exchange_and_add(const std::vector<bool>& present, const std::vector<size_t>& counts, const Areas& areas,
                        const Call& call);
  void copy(const Channel& channel, void* to, const void* from, size_t bytes, const Call& call);
  void wait_for(const Channel& channel, const Call& call);
  std::byte* staging(size_t bytes, const Call& call);

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
  check(api_.use_device(options_.device), "use the device", call);
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
    const std::string why = fmt::format("rank {} gave up waiting in {}: deadline passed", rank(), call.tag);
    const std::string states = in_one_line(state_text());
    abandon(why);
    fail(Exit::kUnavailable, "{}; {}", why, states);
  }
  traffic_.seconds_waiting += monotonic_s() - start;
}

// Heads by the control group: a wrong order of calls ends there, named, before NCCL would hang in it.
std::vector<bool> NcclGroup::agree(uint64_t digest, bool present, const Call& call) {
  ++traffic_.calls;
  check(api_.use_device(options_.device), "use the device", call);  // of this thread, which may be another each time
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
  std::vector<size_t> sizes, totals(static_cast<size_t>(world()), 0);
  for (const GatherPart& part : parts) {
    check_part(part, rank(), world());
    sizes.insert(sizes.end(), part.sizes.begin(), part.sizes.end());
    for (size_t r = 0; r < totals.size(); ++r) totals[r] += part.sizes[r];
  }
  agree(digest_of("all_gather", sizes), true, call);
  size_t longest = *std::max_element(totals.begin(), totals.end());
  for (size_t lo = 0; lo < longest; lo += options_.piece_bytes) gather_window(parts, totals, lo, call);
}

// Bytes from `lo` on of every rank's stream: what all its parts make, back to back.
void NcclGroup::gather_window(std::span<const GatherPart> parts, const std::vector<size_t>& totals, size_t lo,
                              const Call& call) {
  auto me = static_cast<size_t>(rank());
  size_t hi = lo + options_.piece_bytes;
  std::vector<size_t> bytes;
  for (size_t total : totals) bytes.push_back(std::min(total, hi) - std::min(total, lo));
  size_t stride = *std::max_element(bytes.begin(), bytes.end());
  std::byte *area = staging(stride * bytes.size(), call), *mine = area + me * stride;
  for_range(parts, rank(), lo, hi, [&](const GatherPart& part, size_t from, size_t at, size_t count) {
    copy(gathers_, mine + (at - lo), part.mine.data() + from, count, call);
  });
  bool equal = std::all_of(bytes.begin(), bytes.end(), [&](size_t each) { return each == stride; });
  check(api_.group_start(), "start", call);
  if (equal) check(api_.all_gather(mine, area, stride, gathers_.comm, gathers_.stream), "gather", call);
  for (size_t peer = 0; peer < bytes.size(); ++peer) {
    if (peer == me) continue;
    if (!equal) send_and_receive(gathers_, peer, {mine, bytes[me]}, {area + peer * stride, bytes[peer]}, call);
    traffic_.bytes_sent += equal ? 0 : bytes[me];
    traffic_.bytes_received += bytes[peer];
  }
  traffic_.bytes_sent += equal ? stride : 0;
  check(api_.group_end(), "launch", call);
  for (int peer = 0; peer < world(); ++peer) {
    for_range(parts, peer, lo, hi, [&](const GatherPart& part, size_t from, size_t at, size_t count) {
      std::byte* to = part.into.data() + place_of(part, peer) + from;
      if (peer == rank() && to == part.mine.data() + from) return;
      copy(gathers_, to, area + static_cast<size_t>(peer) * stride + (at - lo), count, call);
    });
  }
  wait_for(gathers_, call);
}

void NcclGroup::send_and_receive(const Channel& channel, size_t peer, std::span<const std::byte> to_it,
                                 std::span<std::byte> from_it, const Call& call) {
  auto other = static_cast<int>(peer);
  if (!to_it.empty()) check(api_.send(to_it.data(), to_it.size(), other, channel.comm, channel.stream), "send", call);
  if (!from_it.empty())
    check(api_.receive(from_it.data(), from_it.size(), other, channel.comm, channel.stream), "receive", call);
}

void NcclGroup::reduce_fold(std::span<const float> gradient, bool present, std::span<const size_t> offsets,
                            std::span<float> acc, const Call& call) {
  check_fold(gradient, present, offsets, acc, rank(), world());
  fold({present, offsets, acc,
        [&](size_t from, float* to, size_t count) {
          copy(folds_, to, gradient.data() + from, count * sizeof(float), call);
        }},
       call);
}

void NcclGroup::reduce_given(const GiveGradient& give, bool present, std::span<const size_t> offsets,
                             std::span<float> acc, const Call& call) {
  check_fold({}, false, offsets, acc, rank(), world());
  std::vector<float> piece;
  fold({present, offsets, acc,
        [&](size_t from, float* to, size_t count) {
          piece.resize(std::max(piece.size(), std::min(count, kGivenPiece)));
          for (size_t at = 0; at < count; at += kGivenPiece) {
            std::span<float> part = std::span(piece).first(std::min(kGivenPiece, count - at));
            give(from + at, part);
            copy(folds_, to + at, part.data(), part.size_bytes(), call);
          }
        }},
       call);
}

void NcclGroup::fold(const Folded& fold, const Call& call) {
  std::vector<bool> present = agree(digest_of("reduce_fold", fold.offsets), fold.present, call);
  size_t longest = 0, window = std::max<size_t>(1, options_.piece_bytes / sizeof(float));
  for (size_t r = 0; r < present.size(); ++r) longest = std::max(longest, fold.offsets[r + 1] - fold.offsets[r]);
  for (size_t lo = 0; lo < longest; lo += window) fold_window(fold, present, lo, std::min(window, longest - lo), call);
}

// Elements [lo, lo + stride) of every interval: sent to its owner, who adds what arrived in rank order.
void NcclGroup::fold_window(const Folded& fold, const std::vector<bool>& present, size_t lo, size_t stride,
                            const Call& call) {
  auto me = static_cast<size_t>(rank());
  std::vector<size_t> counts;
  for (size_t r = 0; r < present.size(); ++r) {
    size_t size = fold.offsets[r + 1] - fold.offsets[r];
    counts.push_back(std::min(size, lo + stride) - std::min(size, lo));
  }
  bool equal = std::all_of(counts.begin(), counts.end(), [&](size_t each) { return each == stride; });
  bool fast = options_.fold == Fold::kFast && equal;
  size_t each = stride * present.size(), mine = counts[me];
  float* given = reinterpret_cast<float*>(staging((2 * each + stride) * sizeof(float), call));
  float *arrived = given + each, *sum = arrived + each;
  for (size_t peer = 0; peer < present.size() && fold.present; ++peer)
    fold.give(fold.offsets[peer] + lo, given + peer * stride, counts[peer]);
  if (mine > 0) copy(folds_, sum, fold.acc.data() + lo, mine * sizeof(float), call);
  if (fast) {  // an absent rank adds zeros
    if (!fold.present) check(api_.zero(given, each * sizeof(float), folds_.stream), "clear", call);
    check(api_.reduce_scatter_f32(given, arrived, stride, folds_.comm, folds_.stream), "reduce", call);
    check(api_.fold_add(sum, arrived, static_cast<int64_t>(mine), folds_.stream), "add", call);
  } else {
    exchange_and_add(present, counts, {given, arrived, sum, stride}, call);
  }
  if (mine > 0) copy(folds_, fold.acc.data() + lo, sum, mine * sizeof(float), call);
  traffic_.bytes_sent += fast ? stride * (present.size() - 1) * sizeof(float) : 0;
  traffic_.bytes_received += fast ? stride * (present.size() - 1) * sizeof(float) : 0;
  wait_for(folds_, call);
}

void NcclGroup::exchange_and_add(const std::vector<bool>& present, const std::vector<size_t>& counts,
                                 const Areas& areas, const Call& call) {
  auto me = static_cast<size_t>(rank());
  check(api_.group_start(), "start", call);
  for (size_t peer = 0; peer < present.size(); ++peer) {
    if (peer == me) continue;
    std::span<const float> to_it(areas.given + peer * areas.stride, present[me] ? counts[peer] : 0);
    std::span<float> from_it(areas.arrived + peer * areas.stride, present[peer] ? counts[me] : 0);
    send_and_receive(folds_, peer, std::as_bytes(to_it), std::as_writable_bytes(from_it), call);
    traffic_.bytes_sent += to_it.size_bytes();
    traffic_.bytes_received += from_it.size_bytes();
  }
  check(api_.group_end(), "launch", call);
  for (size_t turn = 0; turn < present.size() && counts[me] > 0; ++turn) {
    size_t peer = fault("comm.nccl_own_first") ? (turn + me) % present.size() : turn;
    if (!present[peer]) continue;
    const float* from = (peer == me ? areas.given : areas.arrived) + peer * areas.stride;
    check(api_.fold_add(areas.sum, from, static_cast<int64_t>(counts[me]), folds_.stream), "add", call);
  }
}

void NcclGroup::copy(const Channel& channel, void* to, const void* from, size_t bytes, const Call& call) {
  check(api_.copy(to, from, bytes, channel.stream), "copy", call);
}

std::byte* NcclGroup::staging(size_t bytes, const Call& call) {
  if (bytes > staging_bytes_) {
    if (staging_) check(api_.release(staging_), "release memory", call);
    staging_ = nullptr;
    staging_bytes_ = 0;
    check(api_.allocate(&staging_, bytes), "allocate memory", call);
    staging_bytes_ = bytes;
  }
  return static_cast<std::byte*>(staging_);
}

}  // namespace

std::unique_ptr<Group> make_nccl(const sf_collectives& api, std::unique_ptr<Group> control,
                                 const NcclOptions& options) {
  return std::make_unique<NcclGroup>(api, std::move(control), options);
}

}  // namespace sf::comm
