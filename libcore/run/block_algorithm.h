// SPDX-License-Identifier: Apache-2.0
// What the training of every draft of blocks shares: its samples, its anchors.
#pragma once
#include "arch/dflash.h"
#include "arch/drafts.h"
#include "model/block_backbone.h"
#include "plan/work.h"
#include "run/train_draft.h"
#include "tool/draft_settings.h"

namespace sf::run {

class BlockAlgorithm : public DraftAlgorithm {
 public:
  data::Feed::Collate collate(int64_t max_length, Dtype compute) const override;

 protected:
  // Reads tool::BlockSettings and training.seed. `shape` is the draft's own.
  BlockAlgorithm(const DraftFiles& draft, config::Settings& settings, const arch::Dflash& shape);
  bool tied() const { return tied_; }  // the target's head is its embedding
  double gamma() const { return wanted_.gamma; }
  // DraftAlgorithm::work_bytes by what plan/work_NAME.cpp says of the family.
  std::function<uint64_t(const model::Tensors& micro_batch)> block_work(
      const plan::Schedule& plan, model::BlockLabels labels,
      std::function<uint64_t(const plan::BlockRun& run)> work) const;

 private:
  arch::Dflash blocks_;
  const arch::DraftFamily& family_;
  bool tied_;
  uint64_t seed_;
  tool::BlockSettings wanted_;
};

}  // namespace sf::run
