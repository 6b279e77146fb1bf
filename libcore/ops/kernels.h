// SPDX-License-Identifier: Apache-2.0
// Which forms of the operators compute on the CPU: this project's kernels, or chains of LibTorch's own as on other
// devices, to compare engines with equal kernels. Numbers agree within rounding; memory does not.
#pragma once
#include "tensor/tensor.h"

namespace sf::ops {

void use_plain(bool plain);  // of the whole process, before its first operator
bool plain_for(const at::Tensor& x);

}  // namespace sf::ops
