// SPDX-License-Identifier: Apache-2.0
#include "comm/trace.h"

#include <array>

#include "base/fault.h"

namespace sf::comm {

std::string_view name_of(Span::Kind kind) {
  static constexpr std::array<std::string_view, 7> kNames = {"data",   "compute", "optimizer", "publish",
                                                             "gather", "reduce",  "exchange"};
  return kNames[static_cast<size_t>(kind)];
}

void Trace::begin_step(int64_t step) {
  recording_ = sink && wanted && wanted(step);
  if (!recording_) return;
  step_ = step;
  spans_.clear();
  dropped_ = 0;
  last_ = clock_();
}

void Trace::phase(Span::Kind kind) {
  if (recording_) close_gap(clock_());
  phase_ = kind;
}

void Trace::end_step() {
  if (!recording_) return;
  close_gap(clock_());
  recording_ = false;
  sink(step_, spans_, dropped_);
}

void Trace::called(Span span) {
  close_gap(span.begin);
  last_ = span.end;
  add(std::move(span));
}

void Trace::close_gap(double until) {
  if (until > last_) add({.kind = phase_, .begin = last_, .end = until});
  last_ = until;
}

void Trace::add(Span span) {
  if (spans_.size() < kMostSpans || fault("comm.endless_trace"))
    spans_.push_back(std::move(span));
  else
    ++dropped_;
}

namespace {

class Traced : public Group {
 public:
  // Parts share the trace with the whole: it ends with the last of them.
  Traced(std::unique_ptr<Group> group, std::shared_ptr<Trace> trace)
      : group_(std::move(group)), trace_(std::move(trace)) {}

  int rank() const override { return group_->rank(); }
  int world() const override { return group_->world(); }
  std::string_view kind() const override { return group_->kind(); }

  void all_gather(std::span<const GatherPart> parts, const Call& call) override {
    noted(Span::Kind::kGather, call, [&] { group_->all_gather(parts, call); });
  }
  void reduce_fold(std::span<const float> gradient, bool present, std::span<const size_t> offsets, std::span<float> acc,
                   const Call& call) override {
    noted(Span::Kind::kReduce, call, [&] { group_->reduce_fold(gradient, present, offsets, acc, call); });
  }
  void reduce_given(const GiveGradient& give, bool present, std::span<const size_t> offsets, std::span<float> acc,
                    const Call& call) override {
    noted(Span::Kind::kReduce, call, [&] { group_->reduce_given(give, present, offsets, acc, call); });
  }
  void all_reduce_sum(std::span<int64_t> values, const Call& call) override {
    noted(Span::Kind::kReduce, call, [&] { group_->all_reduce_sum(values, call); });
  }
  void broadcast(std::span<std::byte> bytes, int root, const Call& call) override {
    noted(Span::Kind::kExchange, call, [&] { group_->broadcast(bytes, root, call); });
  }
  std::vector<std::vector<std::byte>> all_to_all(const std::vector<std::span<const std::byte>>& to,
                                                 const Call& call) override {
    std::vector<std::vector<std::byte>> received;
    noted(Span::Kind::kExchange, call, [&] { received = group_->all_to_all(to, call); });
    return received;
  }
  void barrier(const Call& call) override {
    noted(Span::Kind::kExchange, call, [&] { group_->barrier(call); });
  }
  std::unique_ptr<Group> split(int colour, const Call& call) override {
    return std::make_unique<Traced>(group_->split(colour, call), trace_);
  }
  std::unique_ptr<Group> aside(const Call& call) override { return group_->aside(call); }
  Traffic traffic() const override { return group_->traffic(); }
  void abandon(std::string_view reason) override { group_->abandon(reason); }
  std::string state_text() const override { return group_->state_text(); }

  Trace* trace() { return trace_.get(); }

 private:
  template <typename Body>
  void noted(Span::Kind kind, const Call& call, Body&& body) {
    if (!trace_->recording()) return body();
    Traffic before = group_->traffic();
    double begin = trace_->now();
    body();
    Traffic after = group_->traffic();
    trace_->called({.kind = kind,
                    .name = std::string(call.tag),
                    .begin = begin,
                    .end = trace_->now(),
                    .waited = after.seconds_waiting - before.seconds_waiting,
                    .bytes = after.bytes_sent - before.bytes_sent});
  }

  std::unique_ptr<Group> group_;
  std::shared_ptr<Trace> trace_;
};

}  // namespace

std::unique_ptr<Group> traced(std::unique_ptr<Group> group, std::function<double()> clock) {
  return std::make_unique<Traced>(std::move(group), std::make_shared<Trace>(std::move(clock)));
}

Trace* trace_of(Group& group) {
  auto* known = dynamic_cast<Traced*>(&group);
  return known ? known->trace() : nullptr;
}

}  // namespace sf::comm
