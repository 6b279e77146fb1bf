// SPDX-License-Identifier: Apache-2.0
// Chat templates: the part of Jinja that they use, as transformers sets it up (trim_blocks, lstrip_blocks, no
// autoescape, immutable values). What the subset lacks is refused with line and column, never approximated.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"

namespace sf::text {

// What strftime_now sees. Fixed by default, so that prompts do not change from day to day.
struct Moment {
  int year = 2024, month = 7, day = 26;
  int hour = 0, minute = 0, second = 0;
};

// Immutable after parsing; safe to share between threads. Work and memory of a rendering are bounded.
class Template {
 public:
  // kConfig "ORIGIN:LINE:COLUMN: ..." for a syntax error or anything outside the subset.
  static Template parse(std::string_view source, std::string_view origin);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // `variables` is an object. kData: what raise_exception said, word for word, or a wrong value with its line and
  // column; kConfig: something that only shows at run time to be outside the subset.
  std::string render(const Json& variables, const Moment& now = {}) const;

 private:
  Template();
  struct Program;
  std::unique_ptr<Program> program_;
};

}  // namespace sf::text
