// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/delta.h"

#include <cmath>
#include <vector>

#include "elements.h"

namespace sf::kernels::reference {

namespace {

std::vector<float> normed(Type type, const void* p, size_t at, size_t dim, float scale) {
  std::vector<float> out(dim);
  float squares = 0;
  for (size_t i = 0; i < dim; ++i) out[i] = get(type, p, at + i), squares += out[i] * out[i];
  for (float& x : out) x *= scale / std::sqrt(squares + 1e-6f);
  return out;
}

void step(const Delta& op, size_t b, size_t t, size_t head, void* out, float* s) {
  const size_t key_head = head / (op.value_heads / op.key_heads), at = (b * op.length + t) * op.value_heads + head;
  const float scale = 1 / std::sqrt(static_cast<float>(op.key_dim));
  const auto q =
      normed(op.type, op.q, b * op.batch_step + t * op.token_step + key_head * op.key_dim, op.key_dim, scale);
  const auto k = normed(op.type, op.k, b * op.batch_step + t * op.token_step + key_head * op.key_dim, op.key_dim, 1);
  for (size_t i = 0; i < op.key_dim * op.value_dim; ++i) s[i] *= std::exp(op.decay[at]);
  for (size_t j = 0; j < op.value_dim; ++j) {
    float known = 0, seen = 0;
    for (size_t i = 0; i < op.key_dim; ++i) known += k[i] * s[i * op.value_dim + j];
    const float v = get(op.type, op.v, b * op.batch_step + t * op.token_step + head * op.value_dim + j);
    const float fix = op.beta[at] * (v - known);
    for (size_t i = 0; i < op.key_dim; ++i) {
      s[i * op.value_dim + j] += k[i] * fix;
      seen += q[i] * s[i * op.value_dim + j];
    }
    put(op.type, out, at * op.value_dim + j, seen);
  }
}

}  // namespace

void delta_steps(const Delta& op, void* out, float* state) {
  for (size_t b = 0; b < op.batch; ++b)
    for (size_t head = 0; head < op.value_heads; ++head)
      for (size_t t = 0; t < op.length; ++t)
        step(op, b, t, head, out, state + (b * op.value_heads + head) * op.key_dim * op.value_dim);
}

void conv_silu(const Convolution& op, void* y) {
  for (size_t b = 0; b < op.batch; ++b)
    for (size_t t = 0; t < op.length; ++t)
      for (size_t c = 0; c < op.channels; ++c) {
        double z = 0;
        for (size_t j = 0; j < op.taps; ++j) {
          const size_t back = (op.taps - 1 - j) * op.dilation;
          if (t < back) continue;
          const float x = get(op.type, op.x, b * op.x_batch + (t - back) * op.x_token + c);
          z += static_cast<double>(op.weight[j * op.channels + c]) * static_cast<double>(x);
        }
        put(op.type, y, (b * op.length + t) * op.channels + c, static_cast<float>(z / (1 + std::exp(-z))));
      }
}

}  // namespace sf::kernels::reference
