// SPDX-License-Identifier: Apache-2.0
#include "run/block_algorithm.h"

#include <algorithm>
#include <utility>

#include "arch/drafts.h"
#include "data/collate.h"

namespace sf::run {

BlockAlgorithm::BlockAlgorithm(const DraftFiles& draft, config::Settings& settings, const arch::Dflash& shape)
    : blocks_(shape),
      family_(arch::draft_family(draft.files.config())),
      tied_(draft.tied()),
      seed_(static_cast<uint64_t>(settings.get_int("training.seed"))),
      wanted_(tool::apply_blocks(settings)) {
  reference_quirks = wanted_.reference_quirks;
}

data::Feed::Collate BlockAlgorithm::collate(int64_t max_length, Dtype compute) const {
  data::DflashShape shape{.vocab = blocks_.vocab,
                          .captured = std::ssize(blocks_.capture_layers) * blocks_.hidden,
                          .max_length = max_length,
                          .compute = compute,
                          .anchors = wanted_.anchors,
                          .seed = seed_,
                          .final_norm = family_.final_norm(),
                          .hidden = blocks_.hidden};
  return [shape](std::span<const stream::Sample> samples) { return data::collate_dflash(samples, shape); };
}

std::function<uint64_t(const model::Tensors&)> BlockAlgorithm::block_work(
    const plan::Schedule& plan, model::BlockLabels labels, std::function<uint64_t(const plan::BlockRun&)> work) const {
  return [=, this, &plan, spec = spec(), longest = int64_t{0}](const model::Tensors& micro_batch) mutable {
    model::DflashBlocks found = model::dflash_blocks(micro_batch, blocks_, labels);
    plan::DflashBatch batch{{}, std::ssize(found.label_ids)};
    int64_t row = -1;
    for (const auto& block : found.blocks) {
      if (block.row != std::exchange(row, block.row)) batch.rows.emplace_back();
      batch.rows.back() = {batch.rows.back().blocks + 1, block.anchor};
    }
    longest = std::max(longest, batch.longest() + blocks_.block);
    return work({spec, plan, batch}) + plan::rotary_bytes(blocks_.head_dim, longest);
  };
}

}  // namespace sf::run
