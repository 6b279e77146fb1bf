// SPDX-License-Identifier: Apache-2.0
#include "tool/memory_limit.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>

#include "base/error.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {{"", 1},
                           {"B", 1},
                           {"K", 1e3},
                           {"M", 1e6},
                           {"G", 1e9},
                           {"T", 1e12},
                           {"KB", 1e3},
                           {"MB", 1e6},
                           {"GB", 1e9},
                           {"TB", 1e12},
                           {"KiB", 1024.0},
                           {"MiB", 1048576.0},
                           {"GiB", 1073741824.0},
                           {"TiB", 1099511627776.0}};

std::optional<uint64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;  // "max" is no number: no limit
}

// Version 2 only: "0::/a/b". The limits of all groups above hold too.
std::optional<uint64_t> group_limit(const fs::path& root) {
  std::ifstream in(root / "proc/self/cgroup");
  std::optional<uint64_t> least;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("0::/")) continue;
    fs::path top = root / "sys/fs/cgroup";
    for (fs::path at = fs::path(line.substr(4)).lexically_normal();; at = at.parent_path()) {
      std::optional<uint64_t> limit = number_in(top / at / "memory.max");
      if (limit && (!least || *limit < *least)) least = limit;
      if (at.empty()) break;
    }
  }
  return least;
}

std::optional<uint64_t> free_memory(const fs::path& root) {
  std::ifstream in(root / "proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    uint64_t kib = 0;
    const char* begin = line.data() + std::min(line.find_first_of("0123456789"), line.size());
    std::from_chars(begin, line.data() + line.size(), kib);
    if (kib > 0) return kib * 1024;
  }
  return std::nullopt;
}

}  // namespace

uint64_t bytes_from_text(std::string_view text, std::string_view what) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& one : kUnits) {
    if (error != std::errc() || unit != one.name || !std::isfinite(number)) continue;
    double bytes = number * one.bytes;
    if (bytes >= 1 && bytes < 9e18) return static_cast<uint64_t>(bytes);
  }
  fail(Exit::kUsage, "{}: wanted bytes such as 8589934592, 8GiB or 8.6G, found '{}'", what, text);
}

uint64_t bytes_of_setting(const config::Settings& settings, std::string_view key) {
  const std::string text = settings.get_string(key), origin = settings.origin(key);
  if (text.empty()) return 0;
  const bool option = origin.starts_with("--") && origin != "--set";
  if (option) return bytes_from_text(text, origin);
  try {
    return bytes_from_text(text, fmt::format("{}: {}", origin, key));
  } catch (const Error& error) {
    throw Error(Exit::kConfig, error.what());
  }
}

MemoryLimit memory_limit(int ranks_here, const fs::path& root) {
  auto ranks = static_cast<uint64_t>(std::max(1, ranks_here));
  std::string shared = ranks == 1 ? "" : fmt::format(" / {} ranks", ranks);
  if (std::optional<uint64_t> limit = group_limit(root)) return {*limit / ranks, "limit of the control group" + shared};
  if (std::optional<uint64_t> free = free_memory(root)) return {*free / ranks, "free memory of this host" + shared};
  return {};
}

}  // namespace sf::tool
