// SPDX-License-Identifier: Apache-2.0
// sf-train dspark: what DSpark adds to the training of a draft.
#include "arch/dspark.h"
#include "base/error.h"
#include "config/apply.h"
#include "model/dspark.h"
#include "run/block_algorithm.h"
#include "run/entry.h"
#include "train/dspark.h"

namespace sf::run {
namespace {

class Dspark : public BlockAlgorithm {
 public:
  Dspark(const DraftFiles& draft, config::Settings& settings)
      : BlockAlgorithm(draft, settings, arch::dspark_from_config(draft.files.config())),
        shape_(arch::dspark_from_config(draft.files.config())) {
    config::Apply slots(settings, "every slot", "train");
    gamma_ = slots.number("training.loss_decay_gamma");
    options_.ce_alpha = slots.number("training.dspark_ce_loss_alpha");
    options_.l1_alpha = slots.number("training.dspark_l1_loss_alpha");
    config::Apply head(settings, shape_.confidence ? "1 confidence head" : "0 confidence heads", "train");
    options_.confidence_alpha = head.number("training.dspark_confidence_head_alpha");
    if (!shape_.confidence) options_.confidence_alpha = 0;
    SF_CHECK(
        options_.ce_alpha + options_.l1_alpha > 0, Exit::kConfig,
        "training.dspark_ce_loss_alpha and training.dspark_l1_loss_alpha are both 0: nothing would train the draft");
  }

  arch::ModelSpec spec() const override { return arch::describe_training(shape_, tied()); }
  std::vector<model::Segment> segments() const override { return model::dspark_segments(shape_, tied(), options_); }
  std::unique_ptr<train::Objective> objective() const override {
    return std::make_unique<train::DsparkObjective>(shape_, options_, gamma_, reference_quirks);
  }

  std::function<uint64_t(const model::Tensors&)> work_bytes(const plan::Schedule& plan) const override {
    return block_work(plan, model::kDsparkLabels, [this](const plan::BlockRun& run) {
      return plan::dspark_work(shape_, run, {options_.asks_teacher(), options_.confidence_alpha != 0});
    });
  }

 private:
  arch::Dspark shape_;
  model::DsparkOptions options_;
  double gamma_ = 0;
};

}  // namespace

const DraftVerb& dspark_verb() {
  static const DraftVerb verb{"dspark",
                              {"training.num_anchors", "training.loss_decay_gamma", "training.dspark_ce_loss_alpha",
                               "training.dspark_l1_loss_alpha", "training.dspark_confidence_head_alpha"},
                              make_draft<Dspark>};
  return verb;
}

}  // namespace sf::run

extern "C" int sf_train_dspark(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_draft(*invocation, sf::run::dspark_verb()); });
}
