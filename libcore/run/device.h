// SPDX-License-Identifier: Apache-2.0
// Where a training verb computes: engine.device, and what a GPU needs of this installation.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "app/command.h"
#include "comm/group.h"
#include "tensor/tensor.h"

namespace sf::run {

// Call before LibTorch is first used: it looks once for what it has. cuda: opens LibTorch's CUDA library, which is
// found beside the one in use, and takes the GPU of this rank's place on its host; sums of its products are fp32, and
// its operators keep one order. kUnavailable: the library cannot be opened, or there is no GPU; kConfig: NCCL without
// one.
at::Device apply_device(app::Invocation& invocation);  // and engine.kernels

// Whether the plan knows what segments allocate there: with this project's kernels.
bool is_planned(at::Device device, app::Invocation& invocation);

// The GPU that apply_device took, as the driver names it; nothing on the CPU.
std::optional<std::string> gpu_name();

// Ranks with a GPU each, over NCCL, for what `control` carries. kUnavailable: no libshardforge-cuda, or without NCCL.
std::unique_ptr<comm::Group> over_nccl(app::Invocation& invocation, std::unique_ptr<comm::Group> control);

}  // namespace sf::run
