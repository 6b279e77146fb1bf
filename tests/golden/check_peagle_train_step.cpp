// SPDX-License-Identifier: Apache-2.0
// One P-EAGLE training step as SpecForge 0.2.0 takes it: loss, predictions by depth, every gradient, the norm before
// clipping, the weights after one clipped AdamW update. Bounds: losses 1e-5 relative, gradients 2e-5 absolute.
#include <ATen/ops/argmax.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>

#include <algorithm>
#include <memory>

#include "arch/peagle.h"
#include "comm/group.h"
#include "train/peagle.h"
#include "train_step.h"

namespace sf::golden {
namespace {

struct Step {
  ckpt::SafetensorsFile file;
  arch::Peagle draft;
  model::PeagleOptions options;
  model::Eagle3Vocabulary vocabulary;
  train::PeagleObjective objective;
  arch::ModelSpec spec;
  std::unique_ptr<comm::Group> group = comm::make_single();
  engine::Engine engine;
  model::Tensors batch, out;
  std::vector<int64_t> counts;

  static arch::Peagle draft_of(const Case& c) {
    Json config = c.json.at("draft_config");
    return arch::peagle_from_config(config.set("mask_token_id", c.json.at("mask_token_id")));
  }

  explicit Step(const Case& c)
      : file(c.tensors()),
        draft(draft_of(c)),
        options{static_cast<int>(c.json.at("num_depths").as_int()), true},
        vocabulary{load(file, "weights/t2d"), load(file, "weights/d2t")},
        objective(draft, vocabulary, options),
        spec(arch::describe_training(draft)),
        engine(*group, spec, model::peagle_segments(draft, vocabulary, options), {}) {
    for (const arch::Parameter& p : spec.parameters) {
      at::Tensor value = p.name == arch::kTargetHead
                             ? load(file, "target/lm_head.weight").index_select(0, vocabulary.t2d.nonzero().view({-1}))
                             : load(file, "weights/" + p.name);
      engine.load(p.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
        std::copy_n(value.const_data_ptr<float>() + lo, hi - lo, to.data());
      });
    }
    make_batch();
    counts = objective.counts(batch);
    objective.weigh(batch, {counts});
    out = engine.round(batch, "loss", {"loss", "depth_sums"});
  }

  void make_batch() {
    for (const char* name : {"loss_mask", "hidden_state"}) batch[name] = load(file, std::string("batch/") + name);
    batch["input_ids"] = load(file, "batch/input_ids_unshifted");
    batch["final_norm"] = load(file, "batch/target_hidden_unshifted");
    at::Tensor logits = at::linear(batch["final_norm"], load(file, "target/lm_head.weight"));
    batch["target_top1"] = at::argmax(logits, -1);
    batch["target_lse"] = at::logsumexp(logits, {-1});
    batch["lengths"] = batch["input_ids"].new_full({1}, batch["input_ids"].size(1));
    at::Tensor sampled = load(file, "cod/depth").gt(0).nonzero().view({-1});
    batch["cod_anchors"] = load(file, "cod/anchor_pos").index_select(0, sampled).unsqueeze(0);
    batch["cod_depths"] = load(file, "cod/depth").index_select(0, sampled).unsqueeze(0);
  }
};

Outcome check_numbers(const Step& step, const Json& expected) {
  auto sums = step.out.at("depth_sums").accessor<double, 2>();
  Outcome outcome = near("loss", step.out.at("loss").item<double>(), expected.at("loss").as_double(), 1e-5);
  double right = 0;
  for (int k = 0; k < step.options.depths && outcome.verdict == Outcome::kPassed; ++k) {
    std::string depth = "position_" + std::to_string(k);
    right += sums[k][1];
    outcome = first_failure({near(depth + " labels", static_cast<double>(step.counts[static_cast<size_t>(k)]),
                                  expected.at(depth + "_acc_total").as_double(), 0),
                             near(depth + " correct", sums[k][1], expected.at(depth + "_acc_sum").as_double(), 0)});
  }
  if (outcome.verdict != Outcome::kPassed) return outcome;
  return near("correct", right, expected.at("full_acc_sum").as_double(), 0);
}

// The case gives one rate and no schedule.
Outcome check_one_step(Step& step, const Case& c) {
  const Json& optimizer = c.json.at("optimizer");
  double lr = optimizer.at("lr").as_double();
  double norm = step.engine.step(lr, optimizer.at("max_grad_norm").as_double(), {}).grad_norm;
  Outcome outcome = near("gradient norm", norm, c.json.at("expected").at("grad_norm_before_clip").as_double(), 1e-5);
  return outcome.verdict == Outcome::kPassed ? check_weights(step.engine, step.spec, step.file, lr) : outcome;
}

Outcome check(const Case& c) {
  Step step(c);
  Outcome outcome =
      first_failure({check_numbers(step, c.json.at("expected")), check_gradients(step.engine, step.spec, step.file)});
  return outcome.verdict == Outcome::kPassed ? check_one_step(step, c) : outcome;
}

const bool registered = add("peagle_train_step", check);

}  // namespace
}  // namespace sf::golden
