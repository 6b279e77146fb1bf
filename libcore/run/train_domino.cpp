// SPDX-License-Identifier: Apache-2.0
// sf-train domino: what Domino adds to the training of a draft.
#include "arch/domino.h"
#include "model/domino.h"
#include "run/block_algorithm.h"
#include "run/entry.h"
#include "train/domino.h"

namespace sf::run {
namespace {

class Domino : public BlockAlgorithm {
 public:
  Domino(const DraftFiles& draft, config::Settings& settings)
      : BlockAlgorithm(draft, settings, arch::domino_from_config(draft.files.config())),
        shape_(arch::domino_from_config(draft.files.config())) {
    const tool::DominoSettings wanted = tool::apply_domino(settings);
    share_ = {wanted.base_start, wanted.base_decay_ratio};
  }

  arch::ModelSpec spec() const override { return arch::describe_training(shape_, tied()); }
  std::vector<model::Segment> segments() const override { return model::domino_segments(shape_, tied()); }
  std::unique_ptr<train::Objective> objective() const override {
    return std::make_unique<train::DominoObjective>(shape_, share_, gamma(), reference_quirks);
  }

  std::function<uint64_t(const model::Tensors&)> work_bytes(const plan::Schedule& plan) const override {
    return block_work(plan, model::domino_labels(shape_),
                      [this](const plan::BlockRun& run) { return plan::domino_work(shape_, run); });
  }

 private:
  arch::Domino shape_;
  train::BaseShare share_;
};

}  // namespace

const DraftVerb& domino_verb() {
  static const DraftVerb verb{"domino", make_draft<Domino>};
  return verb;
}

}  // namespace sf::run

extern "C" int sf_train_domino(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_draft(*invocation, sf::run::domino_verb()); });
}
