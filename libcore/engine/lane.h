// SPDX-License-Identifier: Apache-2.0
// Collective calls in the order they were posted, on a thread beside the computation or where they are posted. The
// computation posts at points that are equal on all ranks, so the calls are too.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace sf::engine {

class Lane {
 public:
  explicit Lane(bool threaded);  // the thread is named "sf-lane"
  ~Lane();                       // drops what has not begun, joins
  Lane(const Lane&) = delete;

  // Returns the call's number. What it touches stays valid until wait() for it, or a later one, returned.
  uint64_t post(std::function<void()> call);
  // Until the call of this number has returned; rethrows the error of the first call that failed (then none after it
  // runs). Waiting ends because every call has a deadline of its own.
  void wait(uint64_t number);
  void drain() { wait(posted_); }
  bool threaded() const { return thread_.joinable(); }

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
  uint64_t posted_ = 0, done_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace sf::engine
