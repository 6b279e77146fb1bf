// SPDX-License-Identifier: Apache-2.0
// Threads inside operators.
#pragma once

namespace sf::tensor {

// Threads that operators called from this thread may use (OpenMP's, per calling thread). At least 1.
void set_threads(int n);
int threads();

}  // namespace sf::tensor
