// SPDX-License-Identifier: Apache-2.0
// A device for machines without one. Its memory can be touched by its own operators only: a pointer into it that the
// host follows ends the process, an operator that meets tensors of two devices is refused. What it computes is what the
// CPU's operators compute, so values can be compared; speed is none.
#pragma once
#include "tensor/tensor.h"

namespace sf {

at::Device fake_device();
uint64_t fake_device_bytes();  // held now, of all its tensors

}  // namespace sf
