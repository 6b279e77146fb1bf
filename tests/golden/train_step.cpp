// SPDX-License-Identifier: Apache-2.0
#include "train_step.h"

#include "train/schedule.h"

namespace sf::golden {

Outcome check_gradients(engine::Engine& engine, const arch::ModelSpec& spec, const ckpt::SafetensorsFile& file) {
  for (const arch::Parameter& p : spec.parameters) {
    if (!p.trainable) continue;
    if (!file.find("grad/" + p.name)) return Outcome::failed("the case has no gradient of " + p.name);
    Outcome outcome =
        same("grad/" + p.name, engine.gathered_gradient(p.name), load(file, "grad/" + p.name), kGradientBound);
    if (outcome.verdict != Outcome::kPassed) return outcome;
  }
  return Outcome::passed();
}

Outcome check_update(engine::Engine& engine, const arch::ModelSpec& spec, const Case& c) {
  ckpt::SafetensorsFile file = c.tensors();
  const Json& expected = c.json.at("expected");
  const Json& optimizer = c.json.at("optimizer");
  train::Schedule schedule{train::decay_from_name(optimizer.at("lr_scheduler").as_string()),
                           optimizer.at("lr").as_double(), optimizer.at("warmup_ratio").as_double(),
                           optimizer.at("total_steps").as_int(), true};
  double lr = train::rate(schedule, 0);
  engine::StepResult result = engine.step(lr, optimizer.at("max_grad_norm").as_double(), {});
  for (Outcome each : {near("rate", lr, expected.at("lr_used_in_step_1").as_double(), 1e-15),
                       near("gradient norm", result.grad_norm, expected.at("grad_norm_before_clip").as_double(), 1e-5)})
    if (each.verdict != Outcome::kPassed) return each;
  return check_weights(engine, spec, file, lr);
}

Outcome check_weights(engine::Engine& engine, const arch::ModelSpec& spec, const ckpt::SafetensorsFile& file,
                      double lr) {
  for (const arch::Parameter& p : spec.parameters) {
    if (!file.find("after/" + p.name)) continue;
    at::Tensor found = engine.gathered(p.name), wanted = load(file, "after/" + p.name);
    at::Tensor undetermined = p.trainable ? load(file, "grad/" + p.name).abs().lt(1e-6) : found.isnan();
    Outcome outcome = same("after/" + p.name, found.masked_fill(undetermined, 0), wanted.masked_fill(undetermined, 0),
                           kGradientBound);
    if (outcome.verdict == Outcome::kPassed)
      outcome = same("after/" + p.name + " (undetermined sign)", found, wanted, 2 * lr);
    if (outcome.verdict != Outcome::kPassed) return outcome;
  }
  return Outcome::passed();
}

}  // namespace sf::golden
