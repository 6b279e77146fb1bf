// SPDX-License-Identifier: Apache-2.0
// sf-train dflash2: what DFlash2 adds to the training of a draft.
#include "arch/dflash2.h"
#include "model/dflash2.h"
#include "run/block_algorithm.h"
#include "run/entry.h"
#include "train/dflash2.h"

namespace sf::run {
namespace {

class Dflash2 : public BlockAlgorithm {
 public:
  Dflash2(const DraftFiles& draft, config::Settings& settings)
      : BlockAlgorithm(draft, settings, arch::dflash2_from_config(draft.files.config())),
        shape_(arch::dflash2_from_config(draft.files.config())) {
    const tool::SlotLossSettings loss = tool::apply_slot_loss(settings);
    const tool::SelectorSettings selector = tool::apply_selector(settings);
    options_.slots.loss = model::slot_loss_from_name(loss.type);
    options_.slots.dpace_alpha = loss.dpace_alpha;
    share_ = {selector.loss_alpha, selector.warmup_ratio, selector.ramp_ratio};
    options_.selector_stop_gradient = selector.stop_gradient;
  }

  arch::ModelSpec spec() const override { return arch::describe_training(shape_, tied()); }
  std::vector<model::Segment> segments() const override { return model::dflash2_segments(shape_, tied(), options_); }
  std::unique_ptr<train::Objective> objective() const override {
    return std::make_unique<train::Dflash2Objective>(shape_, gamma(), options_.slots.loss, share_);
  }

  std::function<uint64_t(const model::Tensors&)> work_bytes(const plan::Schedule& plan) const override {
    return block_work(plan, {}, [this](const plan::BlockRun& run) {
      return plan::dflash2_work(shape_, run, options_.selector_stop_gradient);
    });
  }

 private:
  arch::Dflash2 shape_;
  model::Dflash2Options options_;
  train::SelectorShare share_;
};

}  // namespace

const DraftVerb& dflash2_verb() {
  static const DraftVerb verb{"dflash2", make_draft<Dflash2>};
  return verb;
}

}  // namespace sf::run

extern "C" int sf_train_dflash2(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_draft(*invocation, sf::run::dflash2_verb()); });
}
