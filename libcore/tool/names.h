// SPDX-License-Identifier: Apache-2.0
// The tensors of a checkpoint against what its config.json describes. Private to this room.
#pragma once
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "tool/tensor_set.h"

namespace sf::tool {

struct NameCheck {
  std::vector<std::string> missing, unexpected;
  std::vector<std::string> misshapen;  // "NAME is [2, 3], wanted [3, 2]"
};

// Aliases count as present under both names. Silently ignored: rotary inv_freq left-overs and mtp.*.
NameCheck check_names(const ckpt::Checkpoint& checkpoint, const arch::ModelSpec& spec);
NameCheck check_names(const TensorSet& set, const arch::ModelSpec& spec);
using ckpt::listed;
}  // namespace sf::tool
