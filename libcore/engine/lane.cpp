// SPDX-License-Identifier: Apache-2.0
#include "engine/lane.h"

#include <pthread.h>

#include <utility>

namespace sf::engine {

Lane::Lane(bool threaded) {
  if (!threaded) return;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "sf-lane");
}

Lane::~Lane() {
  if (!threaded()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t Lane::post(std::function<void()> call) {
  if (!threaded()) {
    call();
    return 0;
  }
  {
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    ++posted_;
  }
  changed_.notify_all();
  return posted_;
}

void Lane::wait(uint64_t number) {
  if (!threaded()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number || error_; });
  if (error_) std::rethrow_exception(error_);
}

void Lane::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || (!calls_.empty() && !error_); });
    if (stopping_) return;
    std::function<void()> call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      call();
    } catch (...) {
      error = std::current_exception();
    }
    call = nullptr;  // what it held is free before anybody hears that it is done
    lock.lock();
    if (error) error_ = error;
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace sf::engine
