// SPDX-License-Identifier: Apache-2.0
#include "train_step.h"

#include <ATen/ops/from_blob.h>

#include <cmath>

#include "train/schedule.h"

namespace sf::golden {

at::Tensor load(const ckpt::SafetensorsFile& file, const std::string& name) {
  TensorView view = file.view(name);
  at::ScalarType type = view.dtype == Dtype::kI64 ? at::kLong : view.dtype == Dtype::kBool ? at::kBool : at::kFloat;
  return at::from_blob(const_cast<std::byte*>(view.data), view.shape, at::TensorOptions(type)).clone();
}

Outcome near(const std::string& what, double found, double wanted, double relative) {
  if (relative >= 1e-12) note_error(what, std::abs(found - wanted), relative * std::abs(wanted));  // else exact
  if (std::abs(found - wanted) <= relative * std::abs(wanted)) return Outcome::passed();
  return Outcome::failed(what + " is " + double_text(found) + ", wanted " + double_text(wanted));
}

Outcome same(const std::string& what, const at::Tensor& found, const at::Tensor& wanted, double absolute,
             double relative) {
  at::Tensor a = found.to(at::kFloat).contiguous(), b = wanted.to(at::kFloat).contiguous();
  if (a.sizes() != b.sizes()) return Outcome::failed(what + " has another shape");
  return close(what, a.const_data_ptr<float>(), b.const_data_ptr<float>(), static_cast<size_t>(a.numel()), absolute,
               relative);
}

Outcome first_failure(std::initializer_list<Outcome> outcomes) {
  for (const Outcome& outcome : outcomes)
    if (outcome.verdict != Outcome::kPassed) return outcome;
  return Outcome::passed();
}

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
