// SPDX-License-Identifier: Apache-2.0
// The gated activation of Llama's feed-forward.
#pragma once
#include "tensor/tensor.h"

namespace sf::ops {

// gate, up: equal shape and dtype (fp32 or bf16) -> silu(gate) * up, computed in fp32 and rounded once. Differentiable.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace sf::ops
