// SPDX-License-Identifier: Apache-2.0
// sf-train eagle3: what EAGLE3 adds to the training of a draft.
#include "arch/eagle3.h"
#include "config/apply.h"
#include "data/collate.h"
#include "model/eagle3.h"
#include "plan/work.h"
#include "run/entry.h"
#include "run/vocabulary_algorithm.h"
#include "train/eagle3.h"

namespace sf::run {
namespace {

using config::Apply;

model::Eagle3Options eagle3_options(config::Settings& settings) {
  Apply loss(settings, "every label", "model");
  model::LkLoss lk{.type = model::lk_type_from_name(loss.word("training.lk_loss_type"))};
  if (lk.type == model::LkLoss::Type::kLambda) {
    lk.kl_scale = loss.number("training.kl_scale");
    lk.kl_decay = loss.number("training.kl_decay");
  } else {
    Apply without(settings, "0 labels (training.lk_loss_type is not lambda)", "model");
    for (const char* key : {"training.kl_scale", "training.kl_decay"}) without.nothing(key);
  }
  return {.unroll = static_cast<int>(Apply(settings, "1 segment", "model").whole("training.unroll")),
          .reference_quirks = Apply(settings, "loss and schedule", "train").flag("training.reference_quirks"),
          .lk = lk};
}

class Eagle3 : public VocabularyAlgorithm {
 public:
  Eagle3(const DraftFiles& draft, config::Settings& settings)
      : VocabularyAlgorithm(draft, arch::eagle3_from_config(draft.files.config()).target_hidden),
        shape_(arch::eagle3_from_config(draft.files.config())),
        options_(eagle3_options(settings)) {
    reference_quirks = options_.reference_quirks;
  }

  arch::ModelSpec spec() const override { return arch::describe_training(shape_); }
  std::vector<model::Segment> segments() const override {
    return model::eagle3_segments(shape_, vocabulary(), options_);
  }
  std::unique_ptr<train::Objective> objective() const override {
    return std::make_unique<train::Eagle3Objective>(vocabulary(), options_);
  }
  data::Feed::Collate collate(int64_t max_length, Dtype compute) const override {
    data::Eagle3Shape shape{shape_.vocab, shape_.target_hidden, max_length, compute};
    return [shape](std::span<const stream::Sample> samples) { return data::collate_eagle3(samples, shape); };
  }
  std::vector<std::string> also_frozen() const override {
    return shape_.norm_output ? std::vector<std::string>{} : std::vector<std::string>{"norm.weight"};
  }

  std::function<uint64_t(const model::Tensors&)> work_bytes(const plan::Schedule& plan) const override {
    plan::Eagle3Steps steps{options_.unroll, options_.lk.asks_cross_entropy(),
                            options_.lk.type != model::LkLoss::Type::kNone};
    return [this, steps, compute = plan.options.compute](const model::Tensors& micro_batch) {
      return plan::eagle3_work(shape_, steps, compute, model::eagle3_batch(micro_batch, vocabulary(), options_));
    };
  }

 private:
  arch::Eagle3 shape_;
  model::Eagle3Options options_;
};

}  // namespace

const DraftVerb& eagle3_verb() {
  static const DraftVerb verb{"eagle3",
                              {"training.unroll", "training.lk_loss_type", "training.kl_scale", "training.kl_decay"},
                              make_draft<Eagle3>};
  return verb;
}

}  // namespace sf::run

extern "C" int sf_train_eagle3(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_draft(*invocation, sf::run::eagle3_verb()); });
}
