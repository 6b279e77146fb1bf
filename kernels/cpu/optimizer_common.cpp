// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "sf_kernels/optimizer.h"

namespace sf::kernels {

AdamWConstants adamw_constants(double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step,
                               double scale) {
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
  AdamWConstants c;
  c.scale = static_cast<float>(scale);
  c.keep = static_cast<float>(1 - lr * weight_decay);
  c.beta2 = static_cast<float>(beta2);
  c.rest1 = static_cast<float>(1 - beta1);
  c.rest2 = static_cast<float>(1 - beta2);
  c.step_size = static_cast<float>(lr / correction1);
  c.root = static_cast<float>(1 / std::sqrt(correction2));
  c.eps = static_cast<float>(eps);
  return c;
}

}  // namespace sf::kernels
