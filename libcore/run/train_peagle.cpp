// SPDX-License-Identifier: Apache-2.0
// sf-train peagle: what P-EAGLE adds to the training of a draft.
#include <algorithm>
#include <utility>

#include "arch/peagle.h"
#include "data/collate.h"
#include "model/peagle.h"
#include "plan/work.h"
#include "run/entry.h"
#include "run/vocabulary_algorithm.h"
#include "tool/draft_settings.h"
#include "train/peagle.h"

namespace sf::run {
namespace {

class Peagle : public VocabularyAlgorithm {
 public:
  Peagle(const DraftFiles& draft, config::Settings& settings)
      : VocabularyAlgorithm(draft, arch::peagle_from_config(draft.files.config()).target_hidden),
        shape_(arch::peagle_from_config(draft.files.config())) {
    const tool::PeagleSettings wanted = tool::apply_peagle(settings);
    reference_quirks = wanted.reference_quirks;
    rule_ = {.depths = static_cast<int>(wanted.depths),
             .ratio = wanted.ratio,
             .least = wanted.least,
             .seed = static_cast<uint64_t>(settings.get_int("training.seed"))};
    rule_.reference_quirks = reference_quirks;
    options_ = {rule_.depths, reference_quirks};
  }

  arch::ModelSpec spec() const override { return arch::describe_training(shape_); }
  std::vector<model::Segment> segments() const override {
    return model::peagle_segments(shape_, vocabulary(), options_);
  }
  std::unique_ptr<train::Objective> objective() const override {
    return std::make_unique<train::PeagleObjective>(shape_, vocabulary(), options_);
  }
  data::Feed::Collate collate(int64_t max_length, Dtype compute) const override {
    data::Eagle3Shape shape{shape_.vocab, shape_.target_hidden, max_length, compute};
    return [shape, rule = rule_](std::span<const stream::Sample> samples) {
      return data::collate_peagle(samples, shape, rule);
    };
  }

  std::function<uint64_t(const model::Tensors&)> work_bytes(const plan::Schedule& plan) const override {
    return [this, &plan, spec = spec(), longest = int64_t{0}](const model::Tensors& micro_batch) mutable {
      model::PeagleRows found = model::peagle_rows(micro_batch, shape_, vocabulary(), options_);
      plan::PeagleBatch batch;
      int64_t row = -1;
      for (const model::PeagleRows::Row& each : found.rows) {
        if (each.row != std::exchange(row, each.row)) batch.rows.emplace_back();
        batch.rows.back().resize(static_cast<size_t>(each.depth) + 1);
        ++batch.rows.back().back();
        longest = std::max(longest, each.anchor + each.depth + 1);
      }
      for (size_t n = 0; n < found.label_depths.size(); ++n) {
        if (n == 0 || found.label_depths[n] != found.label_depths[n - 1]) batch.labels.push_back(0);
        ++batch.labels.back();
      }
      return plan::peagle_work(shape_, spec, plan, batch) + plan::rotary_bytes(shape_.head_dim, longest);
    };
  }

 private:
  arch::Peagle shape_;
  data::DepthRule rule_;
  model::PeagleOptions options_;
};

}  // namespace

const DraftVerb& peagle_verb() {
  static const DraftVerb verb{"peagle", make_draft<Peagle>};
  return verb;
}

}  // namespace sf::run

extern "C" int sf_train_peagle(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::train_draft(*invocation, sf::run::peagle_verb()); });
}
