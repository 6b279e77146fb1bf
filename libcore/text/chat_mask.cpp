// SPDX-License-Identifier: Apache-2.0
#include "text/chat_mask.h"

#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "text/tokenizer.h"

namespace sf::text {
namespace {

// The texts a template puts before and behind an answer, found by rendering one.
struct Marks {
  std::string header, end_of_turn;
};

Json message(const char* role, const char* content) {
  Json json = Json::object();
  json.set("role", role);
  json.set("content", content);
  return json;
}

Marks marks_of(const ChatEncoder& encoder) {
  static constexpr const char* kAnswer = "shardforge-answer";
  Json chat = Json::array();
  chat.push(message("user", "shardforge-question"));
  std::string asked = encoder.render(chat, false), prompted = encoder.render(chat, true);
  chat.push(message("assistant", kAnswer));
  std::string answered = encoder.render(chat, false);
  size_t answer = answered.find(kAnswer);
  SF_CHECK(prompted.size() > asked.size() && prompted.starts_with(asked) && answer != std::string::npos &&
               answered.starts_with(asked),
           Exit::kData, "the chat template shows no generation prompt to find answers by");
  return {prompted.substr(asked.size()), answered.substr(answer + std::string_view(kAnswer).size())};
}

bool blank(std::string_view bytes) {
  return bytes.find_first_not_of(" \t\r\n") == bytes.npos;
}

void check_answers(size_t answers) {
  SF_CHECK(answers <= kMostAnswers || fault("text.any_answers"), Exit::kData,
           "more than {} answers among the tokens that are kept; split the chat, or lower capture.max_length",
           kMostAnswers);
}

}  // namespace

EncodedChat truncated(EncodedChat encoded, size_t max_length) {
  if (max_length == 0 || encoded.ids.size() <= max_length) return encoded;
  encoded.cut = encoded.ids.size() - max_length;
  encoded.ids.resize(max_length);
  encoded.loss_mask.resize(max_length);
  return encoded;
}

size_t MaskMaker::tokens_before(const EncodedChat& whole, const std::string& text, size_t bytes) const {
  std::vector<int32_t> prefix = encoder.tokenizer().encode(std::string_view(text).substr(0, bytes));
  if (rule == MaskRule::kReference) return std::min(prefix.size(), whole.ids.size());
  bool same = prefix.size() <= whole.ids.size() && std::equal(prefix.begin(), prefix.end(), whole.ids.begin());
  SF_CHECK(
      same || fault("text.prefix"), Exit::kData,
      "the tokens of the first {} bytes are no prefix of the whole chat's tokens: text merges across a turn's border",
      bytes);
  return std::min(prefix.size(), whole.ids.size());
}

bool MaskMaker::supervise(EncodedChat& whole, const std::string& text, size_t start, size_t end) const {
  size_t from = tokens_before(whole, text, start), to = tokens_before(whole, text, end);
  const Tokenizer& tokenizer = encoder.tokenizer();
  if (rule == MaskRule::kTurn && !fault("text.turn_end")) {
    // What follows the end-of-turn token comes from the template, not from the target.
    size_t last = to;
    while (last > from && !tokenizer.is_special(whole.ids[last - 1]) && blank(tokenizer.bytes_of(whole.ids[last - 1])))
      --last;
    if (last > from && tokenizer.is_special(whole.ids[last - 1])) to = last;
  }
  for (size_t i = from; i < to; ++i) whole.loss_mask[i] = 1;
  return max_length == 0 || to < max_length;
}

EncodedChat MaskMaker::by_prefixes(const Json& messages) const {
  std::string text = encoder.render(messages, false);
  EncodedChat whole;
  whole.ids = encoder.tokenizer().encode(text);
  whole.loss_mask.resize(whole.ids.size());
  Json prefix = Json::array();
  size_t answers = 0;
  for (const Json& message : messages.as_array()) {
    bool answer = message.is_object() && message.get_string("role", "") == "assistant";
    size_t start = 0;
    if (answer) {
      check_answers(++answers);
      std::string before = encoder.render(prefix, true);
      SF_CHECK(text.starts_with(before), Exit::kData,
               "message {}: the template writes what comes before this answer differently inside the whole chat",
               prefix.as_array().size());
      start = before.size();
    }
    prefix.push(message);
    if (!answer) continue;
    std::string behind = encoder.render(prefix, false);
    bool as_written = behind.size() >= start && text.starts_with(behind);
    if (as_written && !supervise(whole, text, start, behind.size())) break;
  }
  return whole;
}

EncodedChat MaskMaker::by_spans(const std::string& text) const {
  Marks marks = marks_of(encoder);
  EncodedChat whole;
  whole.ids = encoder.tokenizer().encode(text);
  whole.loss_mask.resize(whole.ids.size());
  size_t answers = 0;
  for (size_t at = 0; (at = text.find(marks.header, at)) != std::string::npos;) {
    check_answers(++answers);
    size_t start = at + marks.header.size();
    size_t stop = marks.end_of_turn.empty() ? std::string::npos : text.find(marks.end_of_turn, start);
    size_t end = stop == std::string::npos ? text.size() : stop + marks.end_of_turn.size();
    if (!supervise(whole, text, start, end)) break;
    at = end;
  }
  return whole;
}

}  // namespace sf::text
