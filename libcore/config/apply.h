// SPDX-License-Identifier: Apache-2.0
// A setting's value together with the record that it was applied: the code that makes a setting true reads it so.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "config/settings.h"

namespace sf::config {

// Borrows the settings. `what` and `by` end the line "applied KEY=VALUE to WHAT by ROOM".
class Apply {
 public:
  Apply(Settings& settings, std::string what, std::string by)
      : settings_(settings), what_(std::move(what)), by_(std::move(by)) {}

  bool flag(std::string_view key) const {
    return said(key, settings_.get_bool(key), settings_.get_bool(key) ? "true" : "false");
  }
  int64_t whole(std::string_view key) const {
    return said(key, settings_.get_int(key), std::to_string(settings_.get_int(key)));
  }
  double number(std::string_view key) const {
    return said(key, settings_.get_float(key), double_text(settings_.get_float(key)));
  }
  std::string word(std::string_view key) const {
    return said(key, settings_.get_string(key), settings_.get_string(key));
  }
  // Given, but without effect in this run: echoed as "to 0 ...", which is a warning. A default is left alone.
  void nothing(std::string_view key) const {
    if (settings_.given(key)) settings_.applied(key, settings_.shown(key), what_, by_);
  }

 private:
  template <typename Value>
  Value said(std::string_view key, Value value, std::string_view shown) const {
    settings_.applied(key, shown, what_, by_);
    return value;
  }
  Settings& settings_;
  std::string what_, by_;
};

}  // namespace sf::config
