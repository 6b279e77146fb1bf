// SPDX-License-Identifier: Apache-2.0
// sf-train dflash: what DFlash adds to the training of a draft.
#include "arch/dflash.h"
#include "config/apply.h"
#include "model/dflash.h"
#include "run/block_algorithm.h"
#include "run/entry.h"
#include "train/dflash.h"

namespace sf::run {
namespace {

class Dflash : public BlockAlgorithm {
 public:
  Dflash(const DraftFiles& draft, config::Settings& settings)
      : BlockAlgorithm(draft, settings, arch::dflash_from_config(draft.files.config())),
        shape_(arch::dflash_from_config(draft.files.config())) {
    config::Apply slots(settings, "every slot", "train");
    decay_ = slots.number("training.loss_decay_gamma");
    options_.loss = model::slot_loss_from_name(slots.word("training.loss_type"));
    options_.dpace_alpha = slots.number("training.dpace_alpha");
  }

  arch::ModelSpec spec() const override { return arch::describe_training(shape_, tied()); }
  std::vector<model::Segment> segments() const override { return model::dflash_segments(shape_, tied(), options_); }
  std::unique_ptr<train::Objective> objective() const override {
    return std::make_unique<train::DflashObjective>(shape_, decay_, options_.loss);
  }

  std::function<uint64_t(const model::Tensors&)> work_bytes(const plan::Schedule& plan) const override {
    return block_work(plan, {}, [this](const plan::BlockRun& run) { return plan::dflash_work(shape_, run); });
  }

 private:
  arch::Dflash shape_;
  model::DflashOptions options_;
  double decay_ = 0;
};

}  // namespace

const DraftVerb& dflash_verb() {
  static const DraftVerb verb{
      "dflash",
      {"training.num_anchors", "training.loss_decay_gamma", "training.loss_type", "training.dpace_alpha"},
      make_draft<Dflash>};
  return verb;
}

}  // namespace sf::run

extern "C" int sf_train_dflash(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_draft(*invocation, sf::run::dflash_verb()); });
}
