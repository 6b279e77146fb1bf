// SPDX-License-Identifier: Apache-2.0
// The questions of a set by id: copies merged, contradictions refused, oddities said.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "score/rows.h"

namespace sf::score {

class QuestionBook {
 public:
  // Adds a question and returns its index. A second row of the same id, or of the same normal text and gold under
  // another id, is a copy: it gets the first one's index. kData naming both places: two golds or two texts of one id.
  size_t add(const Question& question);
  // What a row of answers says of question `index`: kData if it has another gold. Its text may be a prompt around it.
  void check_gold(size_t index, const Question& given) const { refuse_other_gold(questions_[index], given); }
  std::optional<size_t> find(const std::string& id) const;
  const std::vector<Question>& questions() const { return questions_; }
  size_t size() const { return questions_.size(); }
  size_t copies() const { return copies_; }
  // Lines for people: copies, equal texts with different golds, known defects of published copies.
  std::vector<std::string> warnings() const;
  // SHA-256 over ids, golds and normal texts in order: what verdicts depend on.
  std::string digest() const;
  // SHA-256 over ids and texts in order, as they are: what answers are made for, golds or not.
  std::string asked_digest() const;

 private:
  void refuse_other_gold(const Question& known, const Question& given) const;
  void refuse_other_text(const Question& known, const Question& given) const;
  std::vector<Question> questions_;
  std::map<std::string, size_t> by_id_;
  std::map<std::string, size_t> by_text_;
  std::vector<std::pair<size_t, size_t>> contradictions_;
  size_t copies_ = 0;
};

}  // namespace sf::score
