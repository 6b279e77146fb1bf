// SPDX-License-Identifier: Apache-2.0
// Threads inside operators.
#pragma once

namespace sf::tensor {

// Threads that our kernels called from this thread may use; also the default of threads that never set it. At least 1.
// LibTorch's own operators then run on the caller alone: OpenMP's team would wait for work by spinning, and take the
// cores from the kernels between two operators.
void set_threads(int n);
int threads();  // before any set_threads: as many as LibTorch would use

}  // namespace sf::tensor
