// SPDX-License-Identifier: Apache-2.0
// One DFlash training step as SpecForge 0.2.0 takes it: states at the labels, numerator and denominator, accuracy,
// every gradient, the weights after one clipped AdamW update. Bounds: the case's; states 2e-5 absolute.
#include <ATen/ops/empty.h>

#include "arch/dflash.h"
#include "block_step.h"
#include "model/dflash.h"
#include "train/dflash.h"

namespace sf::golden {
namespace {

model::DflashOptions options_of(const Json& hparams) {
  return {.head_chunk = 100,
          .loss = model::slot_loss_from_name(hparams.get_string("loss_type", "dflash")),
          .dpace_alpha = hparams.get_double("dpace_alpha", 0.5)};
}

struct Step : BlockStep {
  const arch::Dflash& draft;
  const train::DflashObjective& objective;

  Step(const Case& c, const arch::Dflash& shape, const model::DflashOptions& options,
       const train::DflashObjective& given)
      : BlockStep(c, arch::describe_training(shape, false), model::dflash_segments(shape, false, options), given,
                  {"states"}),
        draft(shape),
        objective(given) {}
};

// A state is compared where it is used: at the labels.
Outcome check_states(const Step& step) {
  model::DflashBlocks blocks = model::dflash_blocks(step.batch, step.draft);
  at::Tensor all = load(step.file, "out/draft_hidden"), anchors = step.batch.at("anchors");
  int64_t width = anchors.size(1), block = step.draft.block;
  std::vector<int64_t> rows;  // of [B, N * K], for the kept blocks in order
  for (int64_t b = 0; b < anchors.size(0); ++b)
    for (int64_t n = 0; n < width; ++n)
      if (anchors.const_data_ptr<int64_t>()[b * width + n] >= 0) rows.push_back((b * width + n) * block);
  at::Tensor wanted = at::empty({std::ssize(blocks.label_slots), all.size(2)}, at::kFloat);
  for (int64_t i = 0; i < wanted.size(0); ++i) {
    int64_t slot = blocks.label_slots[static_cast<size_t>(i)];
    int64_t row = rows[static_cast<size_t>(slot / block)] + slot % block;
    wanted.select(0, i).copy_(all.flatten(0, 1).select(0, row));
  }
  return same("states", step.out.at("states"), wanted, 2e-5);
}

Outcome check_numbers(const Step& step, const Json& expected) {
  double labels = 0, correct = 0, loss = step.metric("loss"), denominator = step.objective.denominator(step.counts);
  for (int64_t k = 1; k < step.draft.block; ++k) {
    labels += static_cast<double>(step.counts[static_cast<size_t>(k)]);
    correct += step.sums()[static_cast<size_t>(3 * k + 1)];
  }
  return first_failure(
      {near("loss", step.out.at("loss").item<double>(), expected.at("loss").as_double(), 1e-5),
       near("reported loss", loss, expected.at("loss").as_double(), 1e-5),
       near("numerator", loss * denominator, expected.at("loss_terms").as_array()[0].as_double(), 1e-5),
       near("denominator", denominator, expected.at("loss_terms").as_array()[1].as_double(), 1e-6),
       near("labels", labels, expected.at("accuracy_denom").as_double(), 0),
       near("correct", correct, expected.at("ratio_metrics").at("acc").as_array()[0].as_double(), 0),
       near("accuracy", step.metric("acc"), expected.at("accuracy").as_double(), 1e-6)});
}

Outcome check(const Case& c) {
  arch::Dflash draft = arch::dflash_from_config(c.json.at("draft_config"));
  const Json& hparams = c.json.at("loss_hparams");
  model::DflashOptions options = options_of(hparams);
  train::DflashObjective objective(draft, hparams.get_double("loss_decay_gamma", 0), options.loss);
  Step step(c, draft, options, objective);
  Outcome outcome = first_failure({check_states(step), check_numbers(step, c.json.at("expected")),
                                   check_gradients(step.engine, step.spec, step.file)});
  return outcome.verdict == Outcome::kPassed ? check_update(step.engine, step.spec, c) : outcome;
}

const bool registered = add("dflash_train_step", check);

}  // namespace
}  // namespace sf::golden
