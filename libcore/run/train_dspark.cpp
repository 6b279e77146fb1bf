// SPDX-License-Identifier: Apache-2.0
// sf-train dspark: what DSpark adds to the training of a draft.
#include "arch/dspark.h"
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
    const tool::DsparkSettings wanted = tool::apply_dspark(settings, shape_);
    options_.ce_alpha = wanted.ce_alpha;
    options_.l1_alpha = wanted.l1_alpha;
    options_.confidence_alpha = wanted.confidence_alpha;
  }

  arch::ModelSpec spec() const override { return arch::describe_training(shape_, tied()); }
  std::vector<model::Segment> segments() const override { return model::dspark_segments(shape_, tied(), options_); }
  std::unique_ptr<train::Objective> objective() const override {
    return std::make_unique<train::DsparkObjective>(shape_, options_, gamma(), reference_quirks);
  }

  std::function<uint64_t(const model::Tensors&)> work_bytes(const plan::Schedule& plan) const override {
    return block_work(plan, model::kDsparkLabels, [this](const plan::BlockRun& run) {
      return plan::dspark_work(shape_, run, {options_.asks_teacher(), options_.confidence_alpha != 0});
    });
  }

 private:
  arch::Dspark shape_;
  model::DsparkOptions options_;
};

}  // namespace

const DraftVerb& dspark_verb() {
  static const DraftVerb verb{"dspark", make_draft<Dspark>};
  return verb;
}

}  // namespace sf::run

extern "C" int sf_train_dspark(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_draft(*invocation, sf::run::dspark_verb()); });
}
