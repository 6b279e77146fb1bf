// SPDX-License-Identifier: Apache-2.0
#include "tool/memory_used.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace sf::tool {
namespace {

uint64_t status(std::string_view key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    uint64_t kib = 0;
    const char* begin = line.data() + std::min(line.find_first_of("0123456789"), line.size());
    std::from_chars(begin, line.data() + line.size(), kib);
    return kib * 1024;
  }
  return 0;
}

}  // namespace

PeakMemory::PeakMemory() {
  std::ofstream("/proc/self/clear_refs") << 5;  // the high-water mark falls to what is resident now
  before_ = status("VmRSS:");
}

uint64_t PeakMemory::bytes() const {
  uint64_t peak = status("VmHWM:");
  return peak - std::min(peak, before_);
}

}  // namespace sf::tool
