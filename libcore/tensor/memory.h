// SPDX-License-Identifier: Apache-2.0
// The CPU allocator behind every tensor: it caches, asks for huge pages, and counts.
#pragma once
#include <cstdint>

#include "tensor/tensor.h"

namespace sf::tensor {

// Bytes as requested, rounded up to 64. Counted for the whole process.
struct MemoryCounters {
  uint64_t allocated = 0;    // now
  uint64_t peak = 0;         // most since the last mark
  uint64_t os_requests = 0;  // times that new pages were needed since the last mark; a steady step needs none
  uint64_t os_bytes = 0;     // ever used: what may be in RAM, free memory between tensors included
};

// Makes ours the CPU allocator of LibTorch for the rest of the process. Call once at the start; again does nothing.
// Blocks that the old allocator gave out stay valid. Memory is not zeroed.
void install_allocator();

// Flat zeros of which most may not be needed at once: what the system has just given is zero already and is not
// written, so its pages cost when they are first used, and once.
at::Tensor zeros(int64_t elements, at::ScalarType type);

MemoryCounters memory();
void mark_memory();  // peak := allocated, os_requests := 0
// Anonymous and shared memory of this process that is in RAM now; mapped files are not in it.
uint64_t resident_bytes();

}  // namespace sf::tensor
