// SPDX-License-Identifier: Apache-2.0
// As core.h, for rooms over LibTorch.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "core.h"
