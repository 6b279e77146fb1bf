// SPDX-License-Identifier: Apache-2.0
// How operators hand pieces of work to other threads.
#pragma once
#include "sf_kernels/parallel.h"

namespace sf::ops {

// Runs pieces of at least `grain` items on up to tensor::threads() threads; on the caller alone with one thread,
// inside another piece, or while another thread uses the pool. The caller takes pieces too and waits only for helpers
// that have begun one, so a helper that gets no core costs nothing; helpers look out for work for a few microseconds,
// then sleep. (OpenMP's own team waits for every member at every call: on a busy machine that is ten times slower.) An
// exception of a piece is thrown again in the caller. The kernels' results do not depend on the cut.
kernels::Parallel parallel(size_t grain = 1);

}  // namespace sf::ops
