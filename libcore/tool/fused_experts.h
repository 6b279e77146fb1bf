// SPDX-License-Identifier: Apache-2.0
// Experts in files: tensor by tensor, as released checkpoints have them, or fused, as our checkpoints do
// (models_text_scoring 3.1). Private to this room.
#pragma once
#include <vector>

#include "arch/model_spec.h"
#include "tool/tensor_set.h"

namespace sf::tool {

// "X.experts.E.gate_proj.weight", up_proj and down_proj of all experts become the parameters "X.experts.gate_up_proj"
// (each expert's gate above its up) and "X.experts.down_proj" that `spec` wants, wherever a fused one is absent and all
// its parts are there in the wanted shape and in one type. What is not whole stays, to be named as left over.
void fuse_experts(TensorSet& set, const arch::ModelSpec& spec);

bool is_fused(const StoredTensor& tensor);
// The other way round: a fused tensor's parts, in order. Each keeps what it reads from.
std::vector<StoredTensor> split_experts(const StoredTensor& fused);

}  // namespace sf::tool
