// SPDX-License-Identifier: Apache-2.0
#include "tensor/device.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace sf::tensor {
namespace {

c10::DeviceAllocator* allocator_of(at::Device device) {
  if (device.is_cpu()) return nullptr;
  auto* counting = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  return counting && counting->initialized() ? counting : nullptr;
}

}  // namespace

uint64_t device_peak(at::Device device) {
  c10::DeviceAllocator* counting = allocator_of(device);
  if (!counting) return 0;
  c10::DeviceIndex index = device.has_index() ? device.index() : c10::DeviceIndex{0};
  return static_cast<uint64_t>(counting->getDeviceStats(index).allocated_bytes[0].peak);
}

}  // namespace sf::tensor
