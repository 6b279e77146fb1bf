// SPDX-License-Identifier: Apache-2.0
// How many bytes a rank of this host may use.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "config/settings.h"

namespace sf::tool {

struct MemoryLimit {
  uint64_t bytes = 0;  // of one rank; 0: unknown
  std::string origin;  // "--memory", "limit of the control group / 4 ranks", "free memory / 4 ranks"
};
// The smallest limit of this process's control group and those above it, else the host's free memory, divided by the
// ranks on this host. `root`: where /proc and /sys are.
MemoryLimit memory_limit(int ranks_here, const std::filesystem::path& root = "/");

// "4096", "1.5 GiB", "2G" (powers of 1000), "16MiB" (of 1024). kUsage naming `what` for anything else.
uint64_t bytes_from_text(std::string_view text, std::string_view what);
// The same of a setting, whose place is named: kUsage for a value of its own option ("--memory"), kConfig for one that
// a file or --set gives. 0 if it is empty.
uint64_t bytes_of_setting(const config::Settings& settings, std::string_view key);

}  // namespace sf::tool
