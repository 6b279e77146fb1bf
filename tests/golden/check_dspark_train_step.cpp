// SPDX-License-Identifier: Apache-2.0
// One DSpark training step as SpecForge 0.2.0 takes it: loss, every ratio metric as numerator over denominator, every
// gradient, the weights after one clipped AdamW update. Bounds: the case's; sums of probabilities 1e-5.
#include "arch/dspark.h"
#include "block_step.h"
#include "train/dspark.h"

namespace sf::golden {
namespace {

Outcome ratio(const BlockStep& step, const std::string& name, const Json& numerator, const Json& denominator,
              double bound) {
  double wanted = denominator.as_double();
  return near(name, step.metric(name), wanted > 0 ? numerator.as_double() / wanted : 0, bound);
}

Outcome check_numbers(const BlockStep& step, const Json& expected, bool teacher) {
  Outcome outcome = near("loss", step.out.at("loss").item<double>(), expected.at("loss").as_double(), 1e-5);
  auto also = [&](Outcome next) {
    if (outcome.verdict == Outcome::kPassed) outcome = std::move(next);
  };
  also(near("reported loss", step.metric("loss"), expected.at("loss").as_double(), 1e-5));
  also(near("labels", step.metric("labels"), expected.at("accuracy_denom").as_double(), 0));
  const Json& ratios = expected.at("ratio_metrics");
  std::vector<std::string> names{"acc", "ce_loss", "l1_loss", "confidence_loss", "confidence_abs_error"};
  if (teacher)
    names.insert(names.end(), {"teacher_agreement", "teacher_top1_prob", "draft_top1_prob", "tau_probabilistic"});
  for (const std::string& name : names) {
    const Json::Array& pair = ratios.at(name).as_array();
    also(ratio(step, name, pair[0], pair[1], 1e-5));
  }
  for (auto [key, ours] : {std::pair("ce_position", "ce_position_"), std::pair("accuracy_position", "acc_")}) {
    const Json::Array& pair = ratios.at(key).as_array();
    for (size_t k = 0; k < pair[0].as_array().size(); ++k) {
      also(near("labels of a slot", step.metric("labels_" + std::to_string(k)), pair[1].as_array()[k].as_double(), 0));
      also(ratio(step, ours + std::to_string(k), pair[0].as_array()[k], pair[1].as_array()[k], 1e-5));
    }
  }
  return outcome;
}

Outcome check(const Case& c) {
  arch::Dspark draft = arch::dspark_from_config(c.json.at("draft_config"));
  const Json& hparams = c.json.at("loss_hparams");
  model::DsparkOptions options{.ce_alpha = hparams.get_double("dspark_ce_loss_alpha", 0.1),
                               .l1_alpha = hparams.get_double("dspark_l1_loss_alpha", 0.9),
                               .confidence_alpha = hparams.get_double("dspark_confidence_head_alpha", 1)};
  train::DsparkObjective objective(draft, options, hparams.get_double("loss_decay_gamma", 0), true);
  BlockStep step(c, arch::describe_training(draft, false), model::dspark_segments(draft, false, options), objective);
  Outcome outcome = first_failure({check_numbers(step, c.json.at("expected"), options.asks_teacher()),
                                   check_gradients(step.engine, step.spec, step.file)});
  return outcome.verdict == Outcome::kPassed ? check_update(step.engine, step.spec, c) : outcome;
}

const bool registered = add("dspark_train_step", check);

}  // namespace
}  // namespace sf::golden
