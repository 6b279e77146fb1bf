// SPDX-License-Identifier: Apache-2.0
#include "ops/plain.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>

#include <atomic>

#include "ops/kernels.h"
#include "tensor/device.h"

namespace sf::ops {
namespace {
std::atomic<bool> asked_for = false;
}

void use_plain(bool plain) {
  asked_for = plain;
}
bool plain_for(const at::Tensor& x) {
  return !x.is_cpu() || asked_for;
}

}  // namespace sf::ops

namespace sf::ops::plain {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  at::Tensor wide = x.to(at::kFloat);
  return (wide * at::rsqrt(wide.pow(2).mean(-1, true) + eps)).to(x.scalar_type()) * weight;
}

at::Tensor rms_norm_centred(const at::Tensor& x, const at::Tensor& weight, double eps, int64_t groups) {
  const at::Tensor wide = x.to(at::kFloat).unflatten(-1, {groups, x.size(-1) / groups});
  const at::Tensor unit = (wide * at::rsqrt(wide.pow(2).mean(-1, true) + eps)).flatten(-2);
  return (unit * (weight.to(at::kFloat) + 1)).to(x.scalar_type());
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return (at::silu(gate.to(at::kFloat)) * up.to(at::kFloat)).to(gate.scalar_type());
}

at::Tensor rotary(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions) {
  int64_t half = table.cos.size(1), rest = x.size(-1) - 2 * half;
  auto turns = [&](const at::Tensor& of) {  // [S, half], or [B, 1, S, half]
    at::Tensor rows = tensor::beside(tensor::select(of, 0, positions.reshape({-1})), x);
    if (positions.dim() == 1) return rows;
    return rows.view({positions.size(0), 1, positions.size(1), half});
  };
  at::Tensor cos = turns(table.cos), sin = turns(table.sin), wide = x.narrow(-1, 0, 2 * half).to(at::kFloat);
  at::Tensor a = wide.narrow(-1, 0, half), b = wide.narrow(-1, half, half);
  at::Tensor turned = at::cat({a * cos - b * sin, b * cos + a * sin}, -1).to(x.scalar_type());
  return rest == 0 ? turned : at::cat({turned, x.narrow(-1, 2 * half, rest)}, -1);
}

namespace {

constexpr double kInvisible = -1e30;  // finite: a row that sees nothing has no NaN in it or in its gradient

// Each row sees the keys up to its own, all of them.
bool is_causal(const at::Tensor& ranges, int64_t keys) {
  const int64_t batch = ranges.size(1), rows = ranges.size(2);
  const int64_t *low = ranges.const_data_ptr<int64_t>(), *high = low + batch * rows;
  for (int64_t i = 0; i < batch * rows; ++i)
    if (low[i] != 0 || high[i] != i % rows + 1) return false;
  return rows == keys;
}

// Contiguous as [B, S, nH, hd] behind the view.
at::Tensor merged_order(const at::Tensor& out) {
  return out.transpose(1, 2).contiguous().transpose(1, 2);
}

at::Tensor causal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale) {
  auto for_heads = [&](const at::Tensor& t) {
    if (t.size(1) == q.size(1)) return t;
    at::Tensor shared = t.unsqueeze(2).expand({t.size(0), t.size(1), q.size(1) / t.size(1), t.size(2), t.size(3)});
    return shared.reshape(q.sizes());
  };
  return merged_order(at::scaled_dot_product_attention(q, for_heads(k), for_heads(v), {}, 0, true, scale));
}

// [B, nKV, S, hd] -> [B, nKV, 1, S, hd], fp32.
at::Tensor of_group(const at::Tensor& keys) {
  return keys.to(at::kFloat).unsqueeze(2);
}

}  // namespace

at::Tensor attention(const at::Tensor& q_in, const at::Tensor& k, const at::Tensor& v,
                     const std::optional<at::Tensor>& k_diagonal, const std::optional<at::Tensor>& v_diagonal,
                     const at::Tensor& ranges, double scale) {
  if (!k_diagonal && is_causal(ranges, k.size(2))) return causal(q_in, k, v, scale);
  int64_t batch = q_in.size(0), heads = q_in.size(1), rows = q_in.size(2), dims = q_in.size(3), shared = k.size(1);
  at::Tensor q = (q_in.to(at::kFloat) * scale).reshape({batch, shared, heads / shared, rows, dims});
  at::Tensor place = at::arange(k.size(2), at::kLong), low = ranges[0].unsqueeze(2), high = ranges[1].unsqueeze(2);
  at::Tensor hidden = tensor::beside(place.lt(low).logical_or(place.ge(high)), q).view({batch, 1, 1, rows, k.size(2)});
  std::vector<at::Tensor> scores{at::matmul(q, of_group(k).transpose(-1, -2)).masked_fill(hidden, kInvisible)};
  int64_t diagonals = k_diagonal ? k_diagonal->size(0) : 0;
  for (int64_t i = 0; i < diagonals; ++i) scores.push_back((q * of_group(k_diagonal->select(0, i))).sum(-1, true));
  at::Tensor weight = at::softmax(at::cat(scores, -1), -1), seen = weight.narrow(-1, 0, k.size(2));
  if (diagonals == 0) seen = seen.masked_fill(hidden, 0);
  at::Tensor out = at::matmul(seen, of_group(v));
  for (int64_t i = 0; i < diagonals; ++i)
    out = out + weight.narrow(-1, k.size(2) + i, 1) * of_group(v_diagonal->select(0, i));
  return merged_order(out.reshape({batch, heads, rows, dims})).to(q_in.scalar_type());
}

}  // namespace sf::ops::plain
