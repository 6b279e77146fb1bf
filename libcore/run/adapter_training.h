// SPDX-License-Identifier: Apache-2.0
// What the verbs that train an adapter beside a frozen target share.
#pragma once
#include "arch/model_spec.h"
#include "ckpt/adapter.h"
#include "engine/engine.h"
#include "text/chat.h"
#include "train/checkpoint.h"

namespace sf::run {

// This rank's intervals: frozen parameters of the target, those that train of the adapter, or of the target without
// one (null). `narrow`: what trains is rounded to bf16. kData naming a parameter that is missing or misshapen.
void load_parameters(engine::Engine& engine, const arch::ModelSpec& spec, const ckpt::Checkpoint& target,
                     const ckpt::AdapterFiles* adapter, bool narrow);

// A checkpoint is an adapter: its own files, PEFT's settings as they came, and the target that they belong to.
void as_adapter(const ckpt::Checkpoint& target, const text::ChatEncoder& encoder, const ckpt::AdapterFiles& adapter,
                train::CheckpointOptions& options);

}  // namespace sf::run
