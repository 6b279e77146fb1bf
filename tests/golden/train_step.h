// SPDX-License-Identifier: Apache-2.0
// What the cases of one training step share: bounds, gradients, the weights after the update.
#pragma once
#include "arch/model_spec.h"
#include "compare.h"
#include "engine/engine.h"

namespace sf::golden {

inline constexpr double kGradientBound = 2e-5;  // absolute, the cases' own

// Gradients of all trainable parameters before the update, against grad/*.
Outcome check_gradients(engine::Engine& engine, const arch::ModelSpec& spec, const ckpt::SafetensorsFile& file);
// One clipped AdamW update at the case's rate, then weights against after/*. A first update is about
// lr * g / (|g| + eps), so where the stored gradient is below 1e-6 its sign is not determined within the gradient's
// bound: such weights may differ by 2 lr, all others by the gradient's bound.
Outcome check_update(engine::Engine& engine, const arch::ModelSpec& spec, const Case& c);
// The second half of it, after an update at this rate.
Outcome check_weights(engine::Engine& engine, const arch::ModelSpec& spec, const ckpt::SafetensorsFile& file,
                      double lr);

}  // namespace sf::golden
