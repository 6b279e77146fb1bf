// SPDX-License-Identifier: Apache-2.0
// sf-train dflash: what DFlash adds to the training of a draft.
#include "arch/dflash.h"
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
    const tool::SlotLossSettings loss = tool::apply_slot_loss(settings);
    options_.loss = model::slot_loss_from_name(loss.type);
    options_.dpace_alpha = loss.dpace_alpha;
  }

  arch::ModelSpec spec() const override { return arch::describe_training(shape_, tied()); }
  std::vector<model::Segment> segments() const override { return model::dflash_segments(shape_, tied(), options_); }
  std::unique_ptr<train::Objective> objective() const override {
    return std::make_unique<train::DflashObjective>(shape_, gamma(), options_.loss);
  }

  std::function<uint64_t(const model::Tensors&)> work_bytes(const plan::Schedule& plan) const override {
    return block_work(plan, {}, [this](const plan::BlockRun& run) { return plan::dflash_work(shape_, run); });
  }

 private:
  arch::Dflash shape_;
  model::DflashOptions options_;
};

}  // namespace

const DraftVerb& dflash_verb() {
  static const DraftVerb verb{"dflash", make_draft<Dflash>};
  return verb;
}

}  // namespace sf::run

extern "C" int sf_train_dflash(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_draft(*invocation, sf::run::dflash_verb()); });
}
