// SPDX-License-Identifier: Apache-2.0
// What this process holds in memory, as the kernel counts it. Private to this room.
#pragma once
#include <cstdint>

namespace sf::tool {

// The most that was resident since construction above what was resident then. Mapped files count. 0 where there is no
// /proc.
class PeakMemory {
 public:
  PeakMemory();
  uint64_t bytes() const;

 private:
  uint64_t before_ = 0;
};

}  // namespace sf::tool
