// SPDX-License-Identifier: Apache-2.0
// Where an answer stands in a completion: after the thinking part, in a box, after a marker. Every function reads the
// text a bounded number of times, whatever it holds.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "score/verdict.h"

namespace sf::score {

// What follows the last </think>. `unfinished`: a thinking part began and did not end; the span is the whole text.
struct Visible {
  Span span;
  bool unfinished = false;
};
Visible visible_part(const Answer& answer);

// The last \boxed or \fbox with an argument: optional white space, then a balanced {...} (a backslash escapes the next
// byte; an inner box if nested) or a run of digits. `unclosed`: the last opened box has no end.
struct Box {
  std::optional<Span> content;
  Span whole;  // with the command and its braces
  bool unclosed = false;
};
Box last_box(std::string_view text);

// A line that says "answer is", "answer:" or "answer =" (any case, bold markup between allowed): what follows in it.
struct Marker {
  size_t at = 0;  // where the word begins
  Span rest;      // to the end of the line
};
std::optional<Marker> last_marker(std::string_view text);

// Which of the named patterns of declining the beginning of a text holds; empty: none.
std::string_view refusal_in(std::string_view visible);
// All names and patterns of refusal_in, one line each: part of every rule's digest that uses it.
std::string refusal_table();

// Verdict of a text without an answer: unfinished, truncated, refused or no_answer, in this order.
Verdict without_answer(const Answer& answer, std::string_view visible, std::string reason);

}  // namespace sf::score
