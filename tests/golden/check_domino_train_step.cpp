// SPDX-License-Identifier: Apache-2.0
// One Domino training step as SpecForge 0.2.0 takes it: losses with and without the correction, accuracies, acceptance
// lengths, every gradient, the weights after one clipped AdamW update. Bounds: the case's.
#include "arch/domino.h"
#include "block_step.h"
#include "train/domino.h"

namespace sf::golden {
namespace {

Outcome check_numbers(const BlockStep& step, const Json& expected) {
  auto agrees = [&](const char* name, const char* key, double bound) {
    return near(name, step.metric(name), expected.at(key).as_double(), bound);
  };
  return first_failure({near("loss", step.out.at("loss").item<double>(), expected.at("loss").as_double(), 1e-5),
                        agrees("loss", "loss", 1e-5), agrees("final_loss", "final_loss", 1e-5),
                        agrees("base_loss", "base_loss", 1e-5), agrees("acc", "accuracy", 1e-6),
                        agrees("base_acc", "base_accuracy", 1e-6), agrees("labels", "accuracy_denom", 0),
                        agrees("accept_len", "accept_len", 1e-6), agrees("base_accept_len", "base_accept_len", 1e-6),
                        agrees("lambda_base", "lambda_base", 1e-6)});
}

Outcome check(const Case& c) {
  arch::Domino draft = arch::domino_from_config(c.json.at("draft_config"));
  const Json& hparams = c.json.at("loss_hparams");
  train::DominoObjective objective(draft, {hparams.at("lambda_base").as_double(), 1},
                                   hparams.get_double("loss_decay_gamma", 0), true);
  BlockStep step(c, arch::describe_training(draft, false), model::domino_segments(draft, false, {.slice = 7}),
                 objective);
  Outcome outcome =
      first_failure({check_numbers(step, c.json.at("expected")), check_gradients(step.engine, step.spec, step.file)});
  return outcome.verdict == Outcome::kPassed ? check_update(step.engine, step.spec, c) : outcome;
}

const bool registered = add("domino_train_step", check);

}  // namespace
}  // namespace sf::golden
