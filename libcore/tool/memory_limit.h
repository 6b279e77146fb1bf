// SPDX-License-Identifier: Apache-2.0
// How many bytes a rank of this host may use.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace sf::tool {

struct MemoryLimit {
  uint64_t bytes = 0;  // of one rank; 0: unknown
  std::string origin;  // "--memory", "limit of the control group / 4 ranks", "free memory / 4 ranks"
};
// `asked`: bytes of a rank ("8589934592", "8GiB", "8G"), or empty: the smallest limit of this process's control group
// and those above it, else the host's free memory, divided by the ranks on this host. `root`: where /proc and /sys are.
MemoryLimit memory_limit(std::string_view asked, int ranks_here, const std::filesystem::path& root = "/");

// "4096", "1.5 GiB", "2G" (powers of 1000), "16MiB" (of 1024). kUsage naming `what` for anything else.
uint64_t bytes_from_text(std::string_view text, std::string_view what);

}  // namespace sf::tool
