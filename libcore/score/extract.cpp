// SPDX-License-Identifier: Apache-2.0
#include "score/extract.h"

#include <fmt/core.h>

#include <array>

#include "base/fault.h"
#include "score/strings.h"

namespace sf::score {
namespace {

constexpr size_t kRefusalWindow = 600;  // a refusal opens an answer, it does not hide in a solution

struct Refusal {
  std::string_view name, pattern;  // lower case
};
constexpr std::array<Refusal, 14> kRefusals = {{
    {"cannot_help", "i cannot help"},
    {"cannot_help", "i can't help"},
    {"cannot_help", "i can\xE2\x80\x99t help"},
    {"cannot_assist", "i cannot assist"},
    {"cannot_assist", "i can't assist"},
    {"cannot_assist", "i can\xE2\x80\x99t assist"},
    {"unable", "i am unable to"},
    {"unable", "i'm unable to"},
    {"unable", "i am not able to"},
    {"unable", "i'm not able to"},
    {"sorry", "i'm sorry, but i can"},
    {"sorry", "i apologize, but i can"},
    {"will_not", "i won't be able to"},
    {"as_an_ai", "as an ai language model"},
}};

constexpr std::string_view kThink = "<think>", kEndThink = "</think>";

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

size_t after_blanks(std::string_view text, size_t at) {
  while (at < text.size() && is_blank(text[at])) ++at;
  return at;
}

// Length of a box command at `at`, or 0.
size_t box_command(std::string_view text, size_t at) {
  for (std::string_view command : {std::string_view("\\boxed"), std::string_view("\\fbox")})
    if (text.compare(at, command.size(), command) == 0) return command.size();
  return 0;
}

// One pass over the braces; boxes whose brace closes are offered in the order of their beginnings' last.
class BoxReader {
 public:
  explicit BoxReader(std::string_view text) : text_(text) {}

  Box read() {
    for (size_t at = 0; at < text_.size(); ++at) {
      char c = text_[at];
      if (c == '\\') {
        at = command(at);
      } else if (c == '{') {
        open_.push_back({at, npos});
      } else if (c == '}') {
        close(at);
      }
    }
    for (const Open& open : open_)
      if (open.command != npos && (!found_.content || open.command > found_.whole.begin)) found_.unclosed = true;
    return found_;
  }

 private:
  static constexpr size_t npos = std::string_view::npos;
  struct Open {
    size_t brace, command;  // command: npos if the brace is no box's
  };

  // A backslash at `at`; returns the last byte it used up.
  size_t command(size_t at) {
    size_t length = box_command(text_, at);
    if (length == 0) return at + 1;
    size_t argument = after_blanks(text_, at + length);
    if (argument < text_.size() && text_[argument] == '{') {
      open_.push_back({argument, at});
      return argument;
    }
    size_t end = argument;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    if (end == argument) return at + length - 1;
    offer(at, {argument, end}, end);
    return end - 1;
  }

  void close(size_t at) {
    if (open_.empty()) return;
    Open open = open_.back();
    open_.pop_back();
    if (open.command != npos) offer(open.command, {open.brace + 1, at}, at + 1);
  }

  void offer(size_t command, Span content, size_t end) {
    bool later = !found_.content || command > found_.whole.begin;
    if (fault("score.first_box")) later = !found_.content;
    if (!later) return;
    found_.content = content;
    found_.whole = {command, end};
  }

  std::string_view text_;
  std::vector<Open> open_;
  Box found_;
};

// What follows the word "answer" at `at`: the place after "is", ":" or "=", or 0 if it is no marker.
size_t marker_end(std::string_view text, size_t at) {
  auto blanks = [&] {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  };
  blanks();
  if (text.compare(at, 2, "**") == 0) at += 2;
  blanks();
  if (at >= text.size()) return 0;
  if (text[at] == ':' || text[at] == '=') return at + 1;
  bool is = at + 2 <= text.size() && lower(text[at]) == 'i' && lower(text[at + 1]) == 's' &&
            (at + 2 == text.size() || !is_letter(text[at + 2]));
  if (!is) return 0;
  at += 2;
  size_t end = at;
  blanks();
  return at < text.size() && text[at] == ':' ? at + 1 : end;
}

}  // namespace

Visible visible_part(const Answer& answer) {
  size_t end = answer.text.rfind(kEndThink);
  if (fault("score.read_thinking")) return {{0, answer.text.size()}, false};
  if (end != std::string_view::npos) return {{end + kEndThink.size(), answer.text.size()}, false};
  bool began = answer.opened_thinking || answer.text.find(kThink) != std::string_view::npos;
  return {{0, answer.text.size()}, began};
}

Box last_box(std::string_view text) {
  return BoxReader(text).read();
}

std::optional<Marker> last_marker(std::string_view text) {
  constexpr std::string_view kWord = "answer";
  if (text.size() < kWord.size()) return std::nullopt;
  for (size_t at = text.size() - kWord.size() + 1; at-- > 0;) {
    if (lower(text[at]) != 'a' || (at > 0 && (is_letter(text[at - 1]) || is_digit(text[at - 1])))) continue;
    if (lowered(text.substr(at, kWord.size())) != kWord) continue;
    size_t begin = marker_end(text, at + kWord.size());
    if (begin == 0) continue;
    return Marker{at, {begin, std::min(text.find('\n', begin), text.size())}};
  }
  return std::nullopt;
}

std::string_view refusal_in(std::string_view visible) {
  std::string beginning = lowered(visible.substr(0, kRefusalWindow));
  for (const Refusal& refusal : kRefusals)
    if (beginning.find(refusal.pattern) != std::string::npos) return refusal.name;
  return "";
}

std::string refusal_table() {
  std::string table;
  for (const Refusal& refusal : kRefusals) table += fmt::format("refused {}: {}\n", refusal.name, refusal.pattern);
  return table;
}

Verdict without_answer(const Answer& answer, std::string_view visible, std::string reason) {
  if (answer.cut) return {Outcome::kTruncated, {}, "", std::move(reason)};
  std::string_view refusal = refusal_in(visible);
  if (!refusal.empty()) return {Outcome::kRefused, {}, "", std::string(refusal)};
  return {Outcome::kNoAnswer, {}, "", std::move(reason)};
}

}  // namespace sf::score
