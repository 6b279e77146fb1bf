// SPDX-License-Identifier: Apache-2.0
#include "tensor/memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fault.h"

namespace sf::tensor {

namespace {

constexpr size_t kAlign = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSlab = size_t{4} << 20;     // small blocks are cut from these and never returned
constexpr size_t kLarge = size_t{256} << 10;  // blocks from this size on are mapped singly
constexpr size_t kClasses = 8 * 64;

// In front of every block. `size` as counted, `where` its class.
struct alignas(kAlign) Header {
  uint64_t size;
  uint32_t where;
  bool fresh;  // of the system, never given before
};
static_assert(sizeof(Header) == kAlign);

// Eight classes a doubling: at most 12.5 % of a block is slack.
size_t class_of(size_t bytes) {
  const size_t top = static_cast<size_t>(std::bit_width(bytes - 1)) - 1;  // bytes > 2^top, bytes >= 128
  const size_t step = top - 3;
  return top * 8 + ((bytes - 1) >> step) - 7;
}

size_t bytes_of(size_t where) {
  const size_t top = (where - 1) / 8, eighths = (where - 1) % 8;
  return ((9 + eighths) << top) >> 3;
}

class Cache {
 public:
  void* take(size_t bytes) {
    const size_t counted = (bytes + kAlign - 1) / kAlign * kAlign;
    const size_t where = class_of(counted + sizeof(Header) + kAlign);
    std::lock_guard lock(mutex_);
    std::vector<void*>& free = free_[where];
    void* block = nullptr;
    const bool fresh = free.empty();
    if (!fresh)
      block = free.back(), free.pop_back();
    else
      block = bytes_of(where) >= kLarge ? map(bytes_of(where)) : cut(bytes_of(where));
    new (block) Header{counted, static_cast<uint32_t>(where), fresh};
    counters_.allocated += counted;
    counters_.peak = std::max(counters_.peak, counters_.allocated);
    return static_cast<std::byte*>(block) + sizeof(Header);
  }

  void give(void* data) {
    if (!data) return;
    void* block = static_cast<std::byte*>(data) - sizeof(Header);
    const Header header = *static_cast<Header*>(block);
    std::lock_guard lock(mutex_);
    counters_.allocated -= header.size;
    free_[header.where].push_back(block);
  }

  MemoryCounters counters() {
    std::lock_guard lock(mutex_);
    return counters_;
  }

  void mark() {
    std::lock_guard lock(mutex_);
    counters_.peak = counters_.allocated;
    counters_.os_requests = 0;
  }

  void release() {
    std::lock_guard lock(mutex_);
    for (size_t where = class_of(kLarge); where < kClasses; ++where) {
      const size_t bytes = bytes_of(where);
      if (bytes < kLarge) continue;
      for (void* block : free_[where]) {
        ::munmap(block, bytes);
        counters_.os_bytes -= bytes;
      }
      free_[where].clear();
    }
  }

 private:
  void* map(size_t bytes) {
    void* block = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SF_CHECK(block != MAP_FAILED, Exit::kOs, "out of memory: the system refused {} bytes ({} bytes in tensors): {}",
             bytes, counters_.allocated, errno_text(errno));
    if (bytes >= kHugePage) ::madvise(block, bytes, MADV_HUGEPAGE);  // advice: a refusal changes nothing
    ++counters_.os_requests;
    counters_.os_bytes += bytes;
    return block;
  }

  void* cut(size_t bytes) {
    bytes = (bytes + kAlign - 1) / kAlign * kAlign;
    if (slab_left_ < bytes) {
      slab_ = static_cast<std::byte*>(map(kSlab));
      slab_left_ = kSlab;
    }
    void* block = slab_;
    slab_ += bytes;
    slab_left_ -= bytes;
    return block;
  }

  std::mutex mutex_;
  std::vector<void*> free_[kClasses];
  std::byte* slab_ = nullptr;
  size_t slab_left_ = 0;
  MemoryCounters counters_;
};

// Never destroyed: tensors in static storage outlive everything else.
Cache& cache() {
  static Cache* const cache = new Cache;
  return *cache;
}

void give_back(void* data) {
  cache().give(data);
}

std::atomic<bool> is_ours = false;

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &give_back, cpu};
    void* data = cache().take(bytes);
    return {data, data, &give_back, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
};

}  // namespace

void install_allocator() {
  static const bool installed = [] {
    c10::SetCPUAllocator(new CountingAllocator, 255);  // LibTorch keeps it for ever
    is_ours = true;
    return true;
  }();
  static_cast<void>(installed);
}

at::Tensor zeros(int64_t elements, at::ScalarType type) {
  at::Tensor flat = at::empty({elements}, at::TensorOptions().dtype(type));
  const auto* data = static_cast<const std::byte*>(flat.mutable_data_ptr());
  bool fresh = is_ours && data && reinterpret_cast<const Header*>(data - sizeof(Header))->fresh;
  if (!fresh && !fault("tensor.all_fresh")) flat.zero_();
  return flat;
}

MemoryCounters memory() {
  return cache().counters();
}
void mark_memory() {
  cache().mark();
}
void release_cached() {
  cache().release();
}

uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  uint64_t bytes = 0;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:") || line.starts_with("RssShmem:"))
      bytes += std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10) * 1024;
  return bytes;
}

}  // namespace sf::tensor
