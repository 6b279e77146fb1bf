// SPDX-License-Identifier: Apache-2.0
// One EAGLE3 training step as SpecForge 0.2.0 takes it: states, logits, losses, metrics, every gradient, the weights
// after one clipped AdamW update. Bounds: the case's (losses 1e-5 relative, gradients 2e-5 absolute); states and logits
// 2e-5 absolute; rates 1e-5.
#include <ATen/ops/argmax.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>

#include <algorithm>
#include <memory>

#include "arch/eagle3.h"
#include "comm/group.h"
#include "engine/engine.h"
#include "golden.h"
#include "model/eagle3.h"
#include "tensor/tensor.h"
#include "train/eagle3.h"
#include "train_step.h"

namespace sf::golden {
namespace {

model::Eagle3Options options_of(const Json& json) {
  model::Eagle3Options options{.unroll = static_cast<int>(json.at("ttt_length").as_int()), .reference_quirks = true};
  const Json& type = json.at("lk_loss_type");
  if (type.is_null()) return options;
  options.lk = {model::lk_type_from_name(type.as_string()), json.at("kl_scale").as_double(),
                json.at("kl_decay").as_double()};
  return options;
}

// The step by the parts that train: the objective's weights, the engine's round and update, one rank.
struct Step {
  const Case& c;
  ckpt::SafetensorsFile file;
  arch::Eagle3 draft;
  int unroll;
  model::Eagle3Options options;
  model::Eagle3Vocabulary vocabulary;
  arch::ModelSpec spec;
  std::unique_ptr<comm::Group> group = comm::make_single();
  engine::Engine engine;
  model::Tensors batch, out;
  double cells = 0;  // B * S, the reference's divisor

  explicit Step(const Case& given)
      : c(given),
        file(given.tensors()),
        draft(arch::eagle3_from_config(given.json.at("draft_config"))),
        unroll(static_cast<int>(given.json.at("ttt_length").as_int())),
        options(options_of(given.json)),
        vocabulary{load(file, "weights/t2d"), load(file, "weights/d2t")},
        spec(arch::describe_training(draft)),
        engine(*group, spec, model::eagle3_traced_segments(draft, vocabulary, options), {}) {
    for (const arch::Parameter& p : spec.parameters)
      fill(p.name, p.name == arch::kTargetHead ? teacher_rows() : load(file, "weights/" + p.name));
    make_batch();
    std::vector<std::string> kept{"loss", "step_sums", "active"};
    for (int k = 0; k < unroll; ++k)
      for (const char* name : {"hidden.", "logits.", "label_rows."}) kept.push_back(name + std::to_string(k));
    out = engine.round(batch, "loss", kept);
  }

  void fill(const std::string& name, const at::Tensor& value) {
    engine.load(name, [&](int64_t lo, int64_t hi, std::span<float> to) {
      std::copy_n(value.const_data_ptr<float>() + lo, hi - lo, to.data());
    });
  }
  at::Tensor teacher_rows() const {
    return load(file, "target/lm_head.weight").index_select(0, vocabulary.t2d.nonzero().view({-1}));
  }

  void make_batch() {
    for (const char* name : {"input_ids", "loss_mask", "hidden_state"})
      batch[name] = load(file, std::string("batch/") + name);
    batch["final_norm"] = load(file, "batch/target");
    at::Tensor logits = at::linear(batch["final_norm"], load(file, "target/lm_head.weight"));
    batch["target_top1"] = at::argmax(logits, -1);
    batch["target_lse"] = at::logsumexp(logits, {-1});
    batch["lengths"] = load(file, "batch/attention_mask").sum({1});
    cells = static_cast<double>(batch["input_ids"].numel());
    train::Eagle3Objective objective(vocabulary, options);
    std::vector<int64_t> counts = objective.counts(batch);
    objective.weigh(batch, {counts});
  }
};

Outcome check_states(Step& step) {
  for (int k = 0; k < step.unroll; ++k) {
    std::string name = "step" + std::to_string(k), n = std::to_string(k);
    if (!step.file.find(name + "/hidden")) continue;
    auto rows = [&](const std::string& what) { return load(step.file, name + what).flatten(0, 1); };
    // A state is compared where it is used: at the indices that reach a label in this step.
    at::Tensor labels = step.out.at("label_rows." + n), slots = labels.sub(k);
    Outcome outcome = same(name + "/logits", step.out.at("logits." + n), rows("/logits").index_select(0, slots), 2e-5);
    if (outcome.verdict != Outcome::kPassed) return outcome;
    at::Tensor here = step.out.at("active").view({-1, 1}).eq(slots.view({1, -1})).any(1).nonzero().view({-1});
    outcome = same(name + "/hidden", step.out.at("hidden." + n).index_select(0, here),
                   rows("/hidden").index_select(0, slots), 2e-5);
    if (outcome.verdict != Outcome::kPassed) return outcome;
  }
  return Outcome::passed();
}

Outcome check_numbers(Step& step) {
  const Json& expected = step.c.json.at("expected");
  model::Eagle3Labels labels = model::eagle3_labels(step.batch, step.vocabulary, step.options);
  auto wanted = [&](const char* key, int k) {
    return expected.at(key).as_array().at(static_cast<size_t>(k)).as_double();
  };
  auto sums = step.out.at("step_sums").accessor<double, 2>();
  Outcome outcome = near("loss", step.out.at("loss").item<double>(), expected.at("loss").as_double(), 1e-5);
  for (int k = 0; k < step.unroll && outcome.verdict == Outcome::kPassed; ++k) {
    std::string n = " of step " + std::to_string(k);
    double trained = static_cast<double>(labels.trained_count[k]),
           supervised = static_cast<double>(labels.supervised_count[k]);
    double divisor = step.options.lk.asks_cross_entropy() ? step.cells : trained;
    for (Outcome each : {near("loss" + n, sums[k][0] / divisor, wanted("plosses", k), 1e-5),
                         near("correct predictions" + n, sums[k][1], wanted("acc_corrects", k), 0),
                         near("accuracy denominator" + n, supervised, wanted("acc_denoms", k), 0),
                         near("accuracy" + n, sums[k][1] / supervised, wanted("acces", k), 1e-6),
                         near("acceptance rate" + n, sums[k][2] / trained, wanted("acceptance_rates", k), 1e-5),
                         near("loss denominator" + n, step.cells, wanted("loss_denoms", k), 0)})
      if (each.verdict != Outcome::kPassed && outcome.verdict == Outcome::kPassed) outcome = each;
  }
  return outcome;
}

Outcome check(const Case& c) {
  Step step(c);
  for (Outcome (*part)(Step&) : {check_states, check_numbers})
    if (Outcome outcome = part(step); outcome.verdict != Outcome::kPassed) return outcome;
  Outcome gradients = check_gradients(step.engine, step.spec, step.file);
  return gradients.verdict == Outcome::kPassed ? check_update(step.engine, step.spec, c) : gradients;
}

const bool registered = add("eagle3_train_step", check);

}  // namespace
}  // namespace sf::golden
