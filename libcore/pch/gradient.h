// SPDX-License-Identifier: Apache-2.0
// As tensor.h, for operators with a gradient of their own.
#pragma once
#include <torch/csrc/autograd/custom_function.h>

#include "tensor.h"
