// SPDX-License-Identifier: Apache-2.0
#include "score/book.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "score/columns.h"

namespace sf::score {
namespace {

// "FILE:LINE and FILE:LINE: ", or nothing of rows without a place.
std::string places(const Question& a, const Question& b) {
  return a.origin.empty() ? "" : fmt::format("{} and {}: ", a.origin, b.origin);
}

}  // namespace

void QuestionBook::refuse_other_gold(const Question& known, const Question& given) const {
  SF_CHECK(same_gold(known.gold, given.gold) || fault("score.last_gold"), Exit::kData,
           "{}question {} has two golds: {} and {}", places(known, given), known.id, known.gold, given.gold);
}

void QuestionBook::refuse_other_text(const Question& known, const Question& given) const {
  if (known.text == given.text || fault("score.first_text")) return;
  SF_CHECK(normal_question(known.text) == normal_question(given.text), Exit::kData,
           "{}question {} has two texts; an id belongs to one question (1 and \"1\" are one id)", places(known, given),
           known.id);
}

size_t QuestionBook::add(const Question& question) {
  if (auto known = by_id_.find(question.id); known != by_id_.end()) {
    refuse_other_gold(questions_[known->second], question);
    refuse_other_text(questions_[known->second], question);
    ++copies_;
    return known->second;
  }
  std::string text = normal_question(question.text);
  if (!text.empty()) {
    auto [same, is_new] = by_text_.emplace(text, questions_.size());
    if (!is_new && same_gold(questions_[same->second].gold, question.gold)) {
      ++copies_;
      by_id_.emplace(question.id, same->second);
      return same->second;
    }
    if (!is_new) contradictions_.emplace_back(same->second, questions_.size());
  }
  by_id_.emplace(question.id, questions_.size());
  questions_.push_back(question);
  return questions_.size() - 1;
}

std::optional<size_t> QuestionBook::find(const std::string& id) const {
  auto found = by_id_.find(id);
  return found == by_id_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> QuestionBook::warnings() const {
  std::vector<std::string> lines;
  for (const auto& [first, second] : contradictions_)
    lines.push_back(fmt::format("questions {} and {} have the same text, but golds {} and {}", questions_[first].id,
                                questions_[second].id, questions_[first].gold, questions_[second].gold));
  for (const Question& question : questions_) {
    std::string defect = known_defect(question);
    if (!defect.empty()) lines.push_back(fmt::format("question {} (gold {}): {}", question.id, question.gold, defect));
  }
  return lines;
}

std::string QuestionBook::digest() const {
  std::string all;
  for (const Question& question : questions_)
    all += fmt::format("{}\n{}\n{}\n", Json(question.id).dump(), Json(question.gold).dump(),
                       Json(normal_question(question.text)).dump());
  return sha256_hex(all);
}

std::string QuestionBook::asked_digest() const {
  std::string all;
  for (const Question& question : questions_)
    all += fmt::format("{}\n{}\n{}\n", Json(question.id).dump(), Json(question.text).dump(), question.messages.dump());
  return sha256_hex(all);
}

}  // namespace sf::score
