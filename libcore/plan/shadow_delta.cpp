// SPDX-License-Identifier: Apache-2.0
// Shadows of the gated delta rule and its convolution.
#include <utility>

#include "plan/shadow_ops.h"

namespace sf::plan {

namespace {
constexpr int64_t kChunk = 64;  // tokens to a state that is kept
}

Shade ShadowOps::columns(const Shade& x, Shape part) {
  Shades out{x.as(std::move(part)).detached()};
  out[0].dense = false;
  tape_.record(out, {x},
               [this, whole = x.shape, type = x.type](const Shades&) -> Shades { return {tape_.make(whole, type)}; });
  return out[0];
}

Shade ShadowOps::conv_silu(const Shade& x, const Shade& weight, int64_t taps) {
  Shade kept = tape_.make({taps, x.shape.back()}, Dtype::kF32);
  Shades out{tape_.make(x.shape, x.type)};
  tape_.record(
      out, {x, weight},
      [this, x = x.detached(), kept, flat = weight.shape, type = weight.type](const Shades& gradients) -> Shades {
        Shade g = dense(gradients[0]), dx = tape_.make(x.shape, x.type);
        Shade sums = tape_.make(kept.shape, Dtype::kF32), turned = tape_.make(flat, Dtype::kF32);
        return {dx, type == Dtype::kF32 ? turned : tape_.make(flat, type)};
      });
  return out[0];
}

Shade ShadowOps::delta_rule(const Shade& mixed, const Shade& decay, const Shade& beta, int64_t values, int64_t state) {
  const int64_t batch = mixed.shape[0], length = mixed.shape[1], heads = decay.shape[2];
  Shades out{tape_.make({batch, length, values}, mixed.type)};
  Shade states = tape_.make({batch * ((length + kChunk - 1) / kChunk) * heads, state}, Dtype::kF32);
  tape_.record(out, {mixed, decay, beta},
               [this, mixed = mixed.detached(), decay = decay.detached(), beta = beta.detached(),
                states](const Shades& gradients) -> Shades {
                 Shade g = dense(gradients[0]);
                 return {tape_.make(mixed.shape, mixed.type), tape_.make(decay.shape, Dtype::kF32),
                         tape_.make(beta.shape, Dtype::kF32)};
               });
  return out[0];
}

}  // namespace sf::plan
