// SPDX-License-Identifier: Apache-2.0
// How operators hand pieces of work to LibTorch's own OpenMP threads.
#pragma once
#include "sf_kernels/parallel.h"

namespace sf::ops {

// Runs pieces on at::get_num_threads() threads; on the caller alone with one thread or inside a parallel region. Pieces
// are cut evenly, never smaller than `grain`. The kernels' results do not depend on the cut.
kernels::Parallel parallel(size_t grain = 1);

}  // namespace sf::ops
