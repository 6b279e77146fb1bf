// SPDX-License-Identifier: Apache-2.0
// A point in time after which a wait gives up. Every wait in the tree takes one.
#pragma once
#include <algorithm>
#include <chrono>

namespace sf {

using Seconds = std::chrono::duration<double>;

class Deadline {
 public:
  static Deadline after(Seconds span) {
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(span));
  }
  static Deadline after_ms(int64_t ms) { return after(Seconds(static_cast<double>(ms) / 1e3)); }
  bool passed() const { return Clock::now() >= when_; }
  Seconds left() const { return std::max(Seconds(0), Seconds(when_ - Clock::now())); }
  int left_ms() const { return static_cast<int>(std::min(left().count() * 1e3 + 0.999, 2e9)); }

 private:
  using Clock = std::chrono::steady_clock;
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

// Seconds since an arbitrary start; for spans and progress, never for results.
inline double monotonic_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace sf
