// SPDX-License-Identifier: Apache-2.0
// Buffers of a model: which there are, and how each comes back (rl_lora 1.6). One that is stored lies with the tensors;
// one that is recomputed is in no file, and the manifest holds the digest of what it must become.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "arch/model_spec.h"
#include "ckpt/checkpoint.h"

namespace sf::ckpt {

// Of all buffers of a model, for its manifest.
std::map<std::string, BufferRecord> buffer_records(const arch::ModelSpec& spec);
// What is wrong with the buffers of a checkpoint, "NAME: ..." each: not listed, stored though it is recomputed or the
// other way round, of another type, recomputed to other bits than it was published with. A directory without a manifest
// is asked for stored ones only.
std::vector<std::string> buffer_problems(const Checkpoint& open, const arch::ModelSpec& spec);
// kData with all of them.
void check_buffers(const Checkpoint& open, const arch::ModelSpec& spec);

}  // namespace sf::ckpt
