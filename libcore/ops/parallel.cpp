// SPDX-License-Identifier: Apache-2.0
#include "ops/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "tensor/threads.h"

namespace sf::ops {

namespace {

using Body = std::function<void(size_t, size_t)>;

constexpr int kSpins = 1000;            // about 20 us of looking out before a thread sleeps
constexpr size_t kPiecesPerThread = 4;  // small enough that a helper taken off its core delays little

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

thread_local bool inside_piece = false;

struct Job {
  const Body* body;
  size_t count, piece;
  size_t most_helpers;
  std::atomic<size_t> next{0};
  size_t helpers = 0;  // registered and not yet done; guarded by the pool's mutex
  std::mutex error_mutex;
  std::exception_ptr error;

  void work() {
    inside_piece = true;
    for (;;) {
      const size_t begin = next.fetch_add(piece, std::memory_order_relaxed);
      if (begin >= count) break;
      try {
        (*body)(begin, std::min(count, begin + piece));
      } catch (...) {
        std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
    }
    inside_piece = false;
  }
};

class Pool {
 public:
  void run(size_t count, size_t piece, size_t threads, const Body& body) {
    std::unique_lock one_at_a_time(user_, std::try_to_lock);
    if (!one_at_a_time) {
      body(0, count);
      return;
    }
    Job job{&body, count, piece, threads - 1};
    publish(job, threads - 1);
    job.work();
    retire(job);
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  void publish(Job& job, size_t helpers) {
    std::lock_guard lock(mutex_);
    for (; started_ < helpers; ++started_) std::thread([this] { help(); }).detach();
    job_ = &job;
    epoch_.fetch_add(1, std::memory_order_release);
    if (sleeping_ > 0) wake_.notify_all();
  }

  // No helper can join after this took the job away; those that did are waited for.
  void retire(Job& job) {
    std::unique_lock lock(mutex_);
    job_ = nullptr;
    for (int i = 0; i < kSpins && job.helpers > 0; ++i) {
      lock.unlock();
      pause();
      lock.lock();
    }
    done_.wait(lock, [&] { return job.helpers == 0; });
  }

  void help() {
    uint32_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && epoch_.load(std::memory_order_acquire) == seen; ++i) pause();
      std::unique_lock lock(mutex_);
      ++sleeping_;
      wake_.wait(lock, [&] { return epoch_.load(std::memory_order_relaxed) != seen; });
      --sleeping_;
      seen = epoch_.load(std::memory_order_relaxed);
      Job* const job = job_;
      if (!job || job->helpers >= job->most_helpers) continue;
      ++job->helpers;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->helpers == 0) done_.notify_one();
    }
  }

  std::mutex user_;  // held by the thread whose job runs
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::atomic<uint32_t> epoch_{0};
  Job* job_ = nullptr;
  size_t started_ = 0, sleeping_ = 0;
};

// Never destroyed: helpers end with the process.
Pool& pool() {
  static Pool* const pool = new Pool;
  return *pool;
}

}  // namespace

kernels::Parallel parallel(size_t grain) {
  return [grain](size_t count, const Body& body) {
    const size_t threads = inside_piece ? 1 : static_cast<size_t>(tensor::threads());
    if (threads <= 1 || count <= grain) {
      body(0, count);
      return;
    }
    const size_t pieces = threads * kPiecesPerThread;
    pool().run(count, std::max(grain, (count + pieces - 1) / pieces), threads, body);
  };
}

}  // namespace sf::ops
