// SPDX-License-Identifier: Apache-2.0
// How an assembly reports while it works. It never prints.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sf::tool {

struct Reporter {
  std::function<void(std::string_view what, uint64_t done, uint64_t total)> progress;  // bytes or rows; may be empty
  std::function<void(std::string_view note)> note;                                     // something the user should know
  std::function<void(std::string_view text)> warning;                                  // something to act on

  void say(std::string_view text) const {
    if (note) note(text);
  }
  void warn(std::string_view text) const {
    if (warning) warning(text);
  }
  void at(std::string_view what, uint64_t done, uint64_t total) const {
    if (progress) progress(what, done, total);
  }
};

}  // namespace sf::tool
