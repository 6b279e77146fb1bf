// SPDX-License-Identifier: Apache-2.0
// sf-train dflash: what DFlash adds to the training of a draft.
#include <algorithm>
#include <utility>

#include "arch/dflash.h"
#include "config/apply.h"
#include "data/collate.h"
#include "model/dflash.h"
#include "plan/work.h"
#include "run/entry.h"
#include "run/train_draft.h"
#include "tool/capture_wish.h"
#include "train/dflash.h"

namespace sf::run {
namespace {

using config::Apply;

class Dflash : public DraftAlgorithm {
 public:
  Dflash(const DraftFiles& draft, config::Settings& settings)
      : shape_(arch::dflash_from_config(draft.files.config())),
        tied_(draft.tied()),
        seed_(static_cast<uint64_t>(settings.get_int("training.seed"))) {
    anchors_ = Apply(settings, "every row", "data").whole("training.num_anchors");
    decay_ = Apply(settings, "every slot", "train").number("training.loss_decay_gamma");
    reference_quirks = Apply(settings, "the schedule", "train").flag("training.reference_quirks");
  }

  arch::ModelSpec spec() const override { return arch::describe_training(shape_, tied_); }
  std::vector<model::Segment> segments() const override { return model::dflash_segments(shape_, tied_); }
  std::unique_ptr<train::Objective> objective() const override {
    return std::make_unique<train::DflashObjective>(shape_, decay_);
  }
  stream::Contract samples() const override {
    return {
        .algorithm = "dflash", .layers = tool::dflash_layers(shape_), .vocab = shape_.vocab, .hidden = shape_.hidden};
  }
  data::Feed::Collate collate(int64_t max_length, Dtype compute) const override {
    int64_t captured = std::ssize(shape_.capture_layers) * shape_.hidden;
    data::DflashShape shape{shape_.vocab, captured, max_length, compute, anchors_, seed_};
    return [shape](std::span<const stream::Sample> samples) { return data::collate_dflash(samples, shape); };
  }

  tool::PlanRequest request(config::Settings& settings, const tool::Samples& samples, int world) const override {
    return tool::dflash_request(settings, shape_, tied_, samples, world);
  }
  std::function<uint64_t(const model::Tensors&)> work_bytes(const plan::Schedule& plan) const override {
    return [this, &plan, spec = spec(), longest = int64_t{0}](const model::Tensors& micro_batch) mutable {
      model::DflashBlocks found = model::dflash_blocks(micro_batch, shape_);
      plan::DflashBatch batch{{}, std::ssize(found.label_ids)};
      int64_t row = -1;
      for (const auto& block : found.blocks) {
        if (block.row != std::exchange(row, block.row)) batch.rows.emplace_back();
        batch.rows.back() = {batch.rows.back().blocks + 1, block.anchor};
      }
      longest = std::max(longest, batch.longest() + shape_.block);
      return plan::dflash_work(shape_, spec, plan, batch) + plan::rotary_bytes(shape_.head_dim, longest);
    };
  }

 private:
  arch::Dflash shape_;
  bool tied_;
  uint64_t seed_;
  int64_t anchors_ = 0;
  double decay_ = 0;
};

}  // namespace

const DraftVerb& dflash_verb() {
  static const DraftVerb verb{"dflash",
                              {"training.num_anchors", "training.loss_decay_gamma"},
                              [](const DraftFiles& draft, config::Settings& settings) {
                                return std::unique_ptr<DraftAlgorithm>(std::make_unique<Dflash>(draft, settings));
                              }};
  return verb;
}

}  // namespace sf::run

extern "C" int sf_train_dflash(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_draft(*invocation, sf::run::dflash_verb()); });
}
