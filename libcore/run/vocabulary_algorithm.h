// SPDX-License-Identifier: Apache-2.0
// What the training of every draft with a vocabulary of its own shares: the map, and the teacher's rows of it.
#pragma once
#include "model/eagle3.h"
#include "run/train_draft.h"

namespace sf::run {

class VocabularyAlgorithm : public DraftAlgorithm {
 public:
  std::vector<NamedTensor> buffers() const override { return buffers_; }
  uint64_t constant_bytes() const override { return vocabulary_.t2d.nbytes() + vocabulary_.d2t.nbytes(); }
  // Elements of the target head's rows that belong to the draft vocabulary, row by row.
  std::optional<engine::Engine::ReadInterval> reader(const std::string& parameter) const override;

 protected:
  // Refuses buffers that disagree (kData). `width`: of the target's states.
  VocabularyAlgorithm(const DraftFiles& draft, int64_t width);
  const model::Eagle3Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  const ckpt::Checkpoint& target_;
  int64_t width_;
  std::vector<NamedTensor> buffers_;  // t2d, d2t as stored
  model::Eagle3Vocabulary vocabulary_;
};

}  // namespace sf::run
