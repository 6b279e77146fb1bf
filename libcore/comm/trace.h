// SPDX-License-Identifier: Apache-2.0
// What one rank did when, for a picture of a step. A traced group notes its own calls; what lies between them is what
// the caller says it does. Steps that nobody wants cost a branch a call.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/group.h"

namespace sf::comm {

struct Span {
  // Between calls: waiting for samples, forward and backward, the optimizer, publishing. In calls: gather (pieces put
  // together), reduce (folds and sums), exchange (all else).
  enum class Kind { kData, kCompute, kOptimizer, kPublish, kGather, kReduce, kExchange };
  Kind kind = Kind::kCompute;
  std::string name;           // a call's tag; empty between calls
  double begin = 0, end = 0;  // seconds of the clock given
  double waited = 0;          // of a call: seconds spent waiting for other ranks
  uint64_t bytes = 0;         // of a call: sent by this rank
};

std::string_view name_of(Span::Kind kind);  // "data", "compute", ...

class Trace {
 public:
  static constexpr size_t kMostSpans = size_t{1} << 16;  // of a step; later ones are counted, not kept

  explicit Trace(std::function<double()> clock) : clock_(std::move(clock)) {}

  // Which steps are recorded (none by default), and who takes their spans, in order and without gaps.
  std::function<bool(int64_t step)> wanted;
  std::function<void(int64_t step, const std::vector<Span>& spans, size_t dropped)> sink;

  void begin_step(int64_t step);
  void phase(Span::Kind kind);  // what is done between calls from now on
  void end_step();

  bool recording() const { return recording_; }
  double now() const { return clock_(); }
  void called(Span span);  // a call has ended; what came before it is a span of the phase

 private:
  void add(Span span);
  void close_gap(double until);
  std::function<double()> clock_;
  bool recording_ = false;
  int64_t step_ = 0;
  double last_ = 0;  // end of what is covered by spans
  Span::Kind phase_ = Span::Kind::kCompute;
  std::vector<Span> spans_;
  size_t dropped_ = 0;
};

// The same group, whose calls (and those of its parts) are noted.
std::unique_ptr<Group> traced(std::unique_ptr<Group> group, std::function<double()> clock = monotonic_s);
Trace* trace_of(Group& group);  // null if it is not a traced one

}  // namespace sf::comm
