// SPDX-License-Identifier: Apache-2.0
#include "ops/plain_delta.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace sf::ops::plain {

namespace {

constexpr int64_t kChunk = 64;
constexpr double kFar = -1e30;  // e^it is 0, and so is its gradient

// [B, S, channels] -> heads [B, H, S, dim] of the columns from `first` on, in fp32.
at::Tensor heads_of(const at::Tensor& mixed, int64_t first, int64_t heads, int64_t dim) {
  const at::Tensor part = mixed.narrow(2, first, heads * dim).to(at::kFloat);
  return part.reshape({mixed.size(0), mixed.size(1), heads, dim}).transpose(1, 2);
}

at::Tensor normed(const at::Tensor& x) {
  return x * at::rsqrt(x.pow(2).sum(-1, true) + 1e-6);
}

// Tokens [.., n, dim] of one chunk; decay and beta [.., n].
struct Chunk {
  at::Tensor q, k, v, decay, beta;
};

// The chunk's outputs; state: before it, then behind it.
at::Tensor advance(const Chunk& c, at::Tensor& state) {
  const at::Tensor sums = at::cumsum(c.decay, -1), grown = at::exp(sums).unsqueeze(-1), beta = c.beta.unsqueeze(-1);
  const int64_t n = c.q.size(-2);
  const at::Tensor visible = at::tril(at::eye(n, sums.options()).fill_(1));
  const at::Tensor apart = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(visible.eq(0), kFar);
  const at::Tensor fade = at::exp(apart);
  const at::Tensor links = at::tril(beta * at::matmul(c.k, c.k.transpose(-1, -2)) * fade, -1);
  const at::Tensor asked = beta * (c.v - grown * at::matmul(c.k, state));
  const at::Tensor fix = at::linalg_solve_triangular(links + at::eye(n, sums.options()), asked, /*upper=*/false,
                                                     /*left=*/true, /*unitriangular=*/true);
  const at::Tensor mix = at::matmul(c.q, c.k.transpose(-1, -2)) * fade;
  const at::Tensor out = grown * at::matmul(c.q, state) + at::matmul(mix, fix);
  const at::Tensor left = at::exp(sums.narrow(-1, n - 1, 1) - sums).unsqueeze(-1);
  state = grown.narrow(-2, n - 1, 1) * state + at::matmul((left * c.k).transpose(-1, -2), fix);
  return out;
}

}  // namespace

at::Tensor delta_rule(const at::Tensor& mixed, const at::Tensor& decay, const at::Tensor& beta,
                      const DeltaHeads& heads) {
  const int64_t keys = heads.key_heads * heads.key_dim, group = heads.value_heads / heads.key_heads;
  const at::Tensor q = normed(heads_of(mixed, 0, heads.key_heads, heads.key_dim)) / std::sqrt(heads.key_dim);
  const at::Tensor k = normed(heads_of(mixed, keys, heads.key_heads, heads.key_dim));
  const at::Tensor v = heads_of(mixed, 2 * keys, heads.value_heads, heads.value_dim);
  const at::Tensor wide_q = q.repeat_interleave(group, 1), wide_k = k.repeat_interleave(group, 1);
  const at::Tensor g = decay.transpose(1, 2), b = beta.transpose(1, 2);
  at::Tensor state = at::zeros({mixed.size(0), heads.value_heads, heads.key_dim, heads.value_dim}, v.options());
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < mixed.size(1); first += kChunk) {
    const int64_t n = std::min(kChunk, mixed.size(1) - first);
    parts.push_back(advance({wide_q.narrow(2, first, n), wide_k.narrow(2, first, n), v.narrow(2, first, n),
                             g.narrow(2, first, n), b.narrow(2, first, n)},
                            state));
  }
  return at::cat(parts, 2).transpose(1, 2).to(mixed.scalar_type());
}

at::Tensor conv_silu(const at::Tensor& x, const at::Tensor& weight, int64_t dilation) {
  const at::Tensor wide = x.to(at::kFloat), taps = weight.to(at::kFloat);
  const int64_t count = weight.size(1), length = x.size(1);
  const at::Tensor padded = at::constant_pad_nd(wide, {0, 0, (count - 1) * dilation, 0});
  at::Tensor sum = padded.narrow(1, 0, length) * taps.select(1, 0);
  for (int64_t j = 1; j < count; ++j) sum = sum + padded.narrow(1, j * dilation, length) * taps.select(1, j);
  return at::silu(sum).to(x.scalar_type());
}

}  // namespace sf::ops::plain
