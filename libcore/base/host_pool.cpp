// SPDX-License-Identifier: Apache-2.0
#include "base/host_pool.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <vector>

#include "base/fault.h"

namespace sf {
namespace {

constexpr size_t kSmall = size_t{64} << 10;    // below, the allocator itself recycles
constexpr size_t kHugePage = size_t{2} << 20;  // one fault instead of 512, where the kernel grants it
constexpr size_t kMostWaste = 4;               // handed out again if it exceeds the wish by at most one part in so many

thread_local const std::shared_ptr<HostPool::State>* lender = nullptr;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Owned = std::unique_ptr<std::byte, Free>;

Owned fresh(size_t room) {
  bool large = room >= 2 * kHugePage;
  size_t align = large ? kHugePage : 64;
  Owned memory(static_cast<std::byte*>(std::aligned_alloc(align, (room + align - 1) / align * align)));
  if (!memory) throw std::bad_alloc();
  if (large) ::madvise(memory.get(), room, MADV_HUGEPAGE);  // a hint: refused, pages are small
  return memory;
}

}  // namespace

struct HostPool::State {
  struct Block {
    Owned memory;
    size_t room = 0;
  };

  explicit State(size_t most) : limit(most) {}

  Block lend(size_t room);
  void take_back(Block block);

  const size_t limit;
  std::mutex mutex;
  std::deque<Block> blocks;  // the longest kept first
  size_t lent = 0, kept = 0;

 private:
  std::vector<Block> over_limit();
};

// Of what is kept the longest goes first; the caller frees it without the lock.
std::vector<HostPool::State::Block> HostPool::State::over_limit() {
  std::vector<Block> gone;
  while (!blocks.empty() && lent + kept > limit && !fault("base.keep_everything")) {
    kept -= blocks.front().room;
    gone.push_back(std::move(blocks.front()));
    blocks.pop_front();
  }
  return gone;
}

HostPool::State::Block HostPool::State::lend(size_t room) {
  std::vector<Block> gone;
  {
    std::lock_guard lock(mutex);
    auto best = blocks.end();
    for (auto it = blocks.begin(); it != blocks.end(); ++it) {
      bool fits = it->room >= room && it->room - room <= room / kMostWaste;
      if (fits && (best == blocks.end() || it->room < best->room)) best = it;
    }
    if (best != blocks.end()) {
      Block block = std::move(*best);
      blocks.erase(best);
      kept -= block.room;
      lent += block.room;
      return block;
    }
    lent += room;
    gone = over_limit();
  }
  gone.clear();
  try {
    return {fresh(room), room};
  } catch (...) {
    std::lock_guard lock(mutex);
    lent -= room;
    throw;
  }
}

void HostPool::State::take_back(Block block) {
  std::vector<Block> gone;  // freed last, without the lock
  std::lock_guard lock(mutex);
  lent -= block.room;
  kept += block.room;
  blocks.push_back(std::move(block));
  gone = over_limit();
}

HostPool::HostPool(size_t limit) : state_(std::make_shared<State>(limit)) {}

size_t HostPool::kept() const {
  std::lock_guard lock(state_->mutex);
  return state_->kept;
}

HostTensor HostPool::unfilled(Dtype dtype, Shape shape) {
  struct Lending {
    explicit Lending(const std::shared_ptr<State>& state) { lender = &state; }
    ~Lending() { lender = nullptr; }
  } lending(state_);
  return HostTensor(dtype, std::move(shape));
}

std::shared_ptr<std::byte> host_memory(size_t room) {
  if (!lender || room < kSmall) {
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, room));
    if (!memory) throw std::bad_alloc();
    std::memset(memory, 0, room);
    return {memory, Free()};
  }
  HostPool::State::Block block = (*lender)->lend(room);
  std::byte* memory = block.memory.get();
  std::weak_ptr<HostPool::State> pool = *lender;
  return {memory, [pool, room = block.room, owned = block.memory.release()](std::byte*) {
            HostPool::State::Block back{Owned(owned), room};
            if (auto still = pool.lock()) still->take_back(std::move(back));
          }};
}

}  // namespace sf
