// SPDX-License-Identifier: Apache-2.0
// One DFlash training step as SpecForge 0.2.0 takes it: states at the labels, numerator and denominator, accuracy,
// every gradient, the weights after one clipped AdamW update. Bounds: the case's; states 2e-5 absolute.
#include <ATen/ops/empty.h>

#include <memory>

#include "arch/dflash.h"
#include "comm/group.h"
#include "model/dflash.h"
#include "train/dflash.h"
#include "train_step.h"

namespace sf::golden {
namespace {

struct Step {
  ckpt::SafetensorsFile file;
  arch::Dflash draft;
  arch::ModelSpec spec;
  train::DflashObjective objective;
  std::unique_ptr<comm::Group> group = comm::make_single();
  engine::Engine engine;
  model::Tensors batch, out;
  std::vector<int64_t> counts;

  explicit Step(const Case& c)
      : file(c.tensors()),
        draft(arch::dflash_from_config(c.json.at("draft_config"))),
        spec(arch::describe_training(draft, false)),
        objective(draft, c.json.at("loss_hparams").get_double("loss_decay_gamma", 0)),
        engine(*group, spec, model::dflash_segments(draft, false, {.head_chunk = 100}), {}) {
    for (const arch::Parameter& p : spec.parameters) {
      at::Tensor value = load(file, p.name == arch::kTargetEmbedding ? "target/embed_tokens.weight"
                                    : p.name == arch::kTargetHead    ? "target/lm_head.weight"
                                                                     : "weights/" + p.name);
      engine.load(p.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
        std::copy_n(value.const_data_ptr<float>() + lo, hi - lo, to.data());
      });
    }
    for (const char* name : {"input_ids", "loss_mask", "hidden_states"})
      batch[name] = load(file, std::string("batch/") + name);
    at::Tensor ids = batch["input_ids"];
    batch["lengths"] = ids.new_full({ids.size(0)}, ids.size(1));
    batch["anchors"] = load(file, "anchors/positions").masked_fill(load(file, "anchors/keep").logical_not(), -1);
    counts = objective.counts(batch);
    objective.weigh(batch, counts);
    out = engine.round(batch, "loss", {"loss", "slot_sums", "states"});
  }
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
  at::Tensor sums = step.out.at("slot_sums");
  double numerator = 0, denominator = 0, labels = 0, correct = 0, loss = 0, accuracy = 0;
  for (const auto& [name, value] :
       step.objective.metrics({sums.const_data_ptr<double>(), 2 * step.counts.size()}, step.counts)) {
    if (name == "loss") loss = value;
    if (name == "acc") accuracy = value;
  }
  for (size_t k = 1; k < step.counts.size(); ++k) {
    labels += static_cast<double>(step.counts[k]);
    correct += sums.const_data_ptr<double>()[2 * k + 1];
  }
  denominator = expected.at("loss_terms").as_array()[1].as_double();
  numerator = loss * denominator;
  return first_failure({near("loss", step.out.at("loss").item<double>(), expected.at("loss").as_double(), 1e-5),
                        near("reported loss", loss, expected.at("loss").as_double(), 1e-5),
                        near("numerator", numerator, expected.at("loss_terms").as_array()[0].as_double(), 1e-5),
                        near("labels", labels, expected.at("accuracy_denom").as_double(), 0),
                        near("correct", correct, expected.at("ratio_metrics").at("acc").as_array()[0].as_double(), 0),
                        near("accuracy", accuracy, expected.at("accuracy").as_double(), 1e-6)});
}

Outcome check(const Case& c) {
  const Json& hparams = c.json.at("loss_hparams");
  std::string type = hparams.get_string("loss_type", "dflash");
  if (type != "dflash") return Outcome::not_run("loss type " + type + " comes with the other drafts");
  arch::Dflash draft = arch::dflash_from_config(c.json.at("draft_config"));
  for (int64_t window : draft.windows)
    if (window > 0) return Outcome::not_run("sliding attention comes with the other drafts");
  Step step(c);
  Outcome outcome = first_failure({check_states(step), check_numbers(step, c.json.at("expected")),
                                   check_gradients(step.engine, step.spec, step.file)});
  return outcome.verdict == Outcome::kPassed ? check_update(step.engine, step.spec, c) : outcome;
}

const bool registered = add("dflash_train_step", check);

}  // namespace
}  // namespace sf::golden
