// SPDX-License-Identifier: Apache-2.0
#include "tensor/memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fault.h"
#include "tensor/extents.h"

namespace sf::tensor {

namespace {

constexpr size_t kAlign = 64;
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegion = size_t{4} << 30;   // of addresses reserved at a time; pages come when they are used
constexpr size_t kSlab = size_t{4} << 20;     // small blocks are cut from these and never joined
constexpr size_t kLarge = size_t{256} << 10;  // blocks from this size on are extents of a region
constexpr size_t kClasses = 8 * 19;           // of small blocks

// In front of every block. `size` as counted.
struct alignas(kAlign) Header {
  uint64_t size;
  bool fresh;  // of the system, never given before
};
static_assert(sizeof(Header) == kAlign);

size_t up_to(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Eight classes a doubling: at most 12.5 % of a small block is slack.
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
    const size_t counted = up_to(bytes, kAlign), whole = counted + sizeof(Header);
    std::lock_guard lock(mutex_);
    Block block = whole < kLarge ? small(whole) : large(whole);
    new (block.data) Header{counted, block.fresh};
    counters_.allocated += counted;
    counters_.peak = std::max(counters_.peak, counters_.allocated);
    return block.data + sizeof(Header);
  }

  void give(void* data) {
    if (!data) return;
    std::byte* block = static_cast<std::byte*>(data) - sizeof(Header);
    const size_t counted = reinterpret_cast<Header*>(block)->size, whole = counted + sizeof(Header);
    std::lock_guard lock(mutex_);
    counters_.allocated -= counted;
    if (whole < kLarge) return free_[class_of(whole)].push_back(block);
    Region& home = *std::find_if(regions_.begin(), regions_.end(), [&](const Region& r) { return r.holds(block); });
    home.extents.give(static_cast<size_t>(block - home.base), up_to(whole, kPage));
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

 private:
  struct Block {
    std::byte* data;
    bool fresh;
  };
  struct Region {
    std::byte* base;
    size_t size;
    Extents extents;
    bool holds(const std::byte* at) const { return at >= base && at < base + size; }
  };

  Block small(size_t whole) {
    const size_t where = class_of(whole), bytes = up_to(bytes_of(where), kAlign);
    if (std::vector<std::byte*>& free = free_[where]; !free.empty()) {
      std::byte* block = free.back();
      free.pop_back();
      return {block, false};
    }
    if (slab_left_ < bytes) {
      Block slab = large(kSlab);
      slab_ = slab.data, slab_fresh_ = slab.fresh;
      slab_left_ = kSlab;
    }
    Block block{slab_, slab_fresh_};
    slab_ += bytes;
    slab_left_ -= bytes;
    return block;
  }

  Block large(size_t bytes) {
    bytes = up_to(bytes, kPage);
    for (Region& region : regions_)
      if (std::optional<Block> block = from(region, bytes)) return *block;
    reserve(bytes);
    return *from(regions_.back(), bytes);
  }

  std::optional<Block> from(Region& region, size_t bytes) {
    const size_t reached = region.extents.reached();
    std::optional<Extents::Extent> extent = region.extents.take(bytes);
    if (!extent) return std::nullopt;
    if (const size_t grown = region.extents.reached() - reached; grown > 0) {
      ++counters_.os_requests;
      counters_.os_bytes += grown;
    }
    return Block{region.base + extent->at, extent->fresh};
  }

  // As much as is usual, or what is needed if the system refuses that.
  void reserve(size_t bytes) {
    size_t size = std::max(up_to(bytes, kHugePage), kRegion);
    void* begin = MAP_FAILED;
    for (; begin == MAP_FAILED && size >= bytes; size /= 2) {
      begin = ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (begin != MAP_FAILED) break;
    }
    SF_CHECK(begin != MAP_FAILED, Exit::kOs, "out of memory: the system refused {} bytes ({} bytes in tensors): {}",
             bytes, counters_.allocated, errno_text(errno));
    auto* base = reinterpret_cast<std::byte*>(up_to(reinterpret_cast<uintptr_t>(begin), kHugePage));
    ::madvise(base, size, MADV_HUGEPAGE);  // advice: a refusal changes nothing
    regions_.push_back({base, size, Extents(size)});
  }

  std::mutex mutex_;
  std::vector<std::byte*> free_[kClasses];
  std::vector<Region> regions_;
  std::byte* slab_ = nullptr;
  size_t slab_left_ = 0;
  bool slab_fresh_ = false;
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
    // Rows and messages of megabytes come and go beside the tensors: their pages go back at once, not into a heap that
    // what lives longer cuts up. (Left to itself the C library raises the limit at the first of them.)
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
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

uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  uint64_t bytes = 0;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:") || line.starts_with("RssShmem:"))
      bytes += std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10) * 1024;
  return bytes;
}

}  // namespace sf::tensor
