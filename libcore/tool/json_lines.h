// SPDX-License-Identifier: Apache-2.0
// JSON Lines as tools leave them behind: the last line may be half written, texts may hold bytes that are no UTF-8.
#pragma once
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/json.h"

namespace sf::tool {

struct JsonLines {
  size_t lines = 0;      // read, blank ones not counted
  size_t repaired = 0;   // lines with bytes that were no UTF-8; each became U+FFFD
  bool dropped = false;  // a half-written last line was left out
};

// What becomes of a half-written last line: it is refused (by a verb that has --repair, or by one without), or left
// out.
enum class HalfLine { kRefuse, kRefuseNamingRepair, kLeaveOut };
constexpr HalfLine half_line(bool repair) {
  return repair ? HalfLine::kLeaveOut : HalfLine::kRefuseNamingRepair;
}

// Calls `take` with each line that is not blank and its number, from 1. A line without newline at the end of the file
// that `take` refuses is half written: kData naming it, or left out. kData for a line over 256 MiB.
JsonLines each_line(const std::filesystem::path& file, HalfLine half,
                    const std::function<void(std::string_view line, size_t number)>& take);
// The same, parsed.
JsonLines each_row(const std::filesystem::path& file, HalfLine half,
                   const std::function<void(const Json& row, size_t number)>& take);

}  // namespace sf::tool
