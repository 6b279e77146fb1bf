// SPDX-License-Identifier: Apache-2.0
// The only header that brings at::Tensor. Sources add <ATen/ops/NAME.h> for each operator they call.
#pragma once
#include <ATen/core/Tensor.h>
