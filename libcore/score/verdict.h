// SPDX-License-Identifier: Apache-2.0
// What a rule says about one answer. "Wrong" is split, because a model that was cut, declined or never came to an
// answer needs another cure than one that erred.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sf::score {

enum class Outcome : uint8_t {
  kCorrect,
  kWrong,
  kOutOfRange,  // an integer, but not one that an answer can be
  kNoAnswer,    // nothing that states an answer
  kUnfinished,  // the thinking part never ended
  kTruncated,   // the length limit cut it before an answer
  kRefused,     // the model declined
  kUndecided,   // symbolic algebra would be needed; counted, never correct
};
constexpr size_t kOutcomes = 8;

std::string_view name_of(Outcome outcome);  // "correct", "out_of_range", ...
std::optional<Outcome> outcome_from_name(std::string_view name);
// An answer was found, right or wrong.
constexpr bool is_readable(Outcome outcome) {
  using enum Outcome;
  return outcome == kCorrect || outcome == kWrong || outcome == kOutOfRange || outcome == kUndecided;
}

struct Span {
  size_t begin = 0, end = 0;  // bytes of the answer's text, half open
  size_t size() const { return end - begin; }
  std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
};

struct Answer {
  std::string_view text;         // the completion, thinking part included; any bytes
  bool cut = false;              // ended by the length limit
  bool opened_thinking = false;  // the prompt ended inside <think>
};

struct Verdict {
  Outcome outcome = Outcome::kNoAnswer;
  Span span;           // where the answer was found; empty: nowhere
  std::string normal;  // normal form of what was found: equal answers have equal ones; empty: none
  std::string reason;  // one word of the rule's list, e.g. "equal", "unclosed_box"
  bool correct() const { return outcome == Outcome::kCorrect; }
};

}  // namespace sf::score
