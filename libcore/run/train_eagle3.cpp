// SPDX-License-Identifier: Apache-2.0
// sf-train eagle3: what EAGLE3 adds to the training of a draft.
#include "arch/eagle3.h"
#include "data/collate.h"
#include "model/eagle3.h"
#include "plan/work.h"
#include "run/entry.h"
#include "run/vocabulary_algorithm.h"
#include "tool/draft_settings.h"
#include "train/eagle3.h"

namespace sf::run {
namespace {

model::Eagle3Options eagle3_options(config::Settings& settings) {
  const tool::Eagle3Settings wanted = tool::apply_eagle3(settings);
  model::LkLoss lk{.type = model::lk_type_from_name(wanted.lk_loss_type)};
  lk.kl_scale = wanted.kl_scale;
  lk.kl_decay = wanted.kl_decay;
  return {.unroll = wanted.unroll, .reference_quirks = wanted.reference_quirks, .lk = lk};
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
  static const DraftVerb verb{"eagle3", make_draft<Eagle3>};
  return verb;
}

}  // namespace sf::run

extern "C" int sf_train_eagle3(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_draft(*invocation, sf::run::eagle3_verb()); });
}
