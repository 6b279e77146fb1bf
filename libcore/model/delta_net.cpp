// SPDX-License-Identifier: Apache-2.0
// The gated delta net of a block. Source: models_text_scoring 3.3, 3.6.
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

#include "model/block_parts.h"
#include "ops/delta_rule.h"
#include "ops/norm.h"
#include "ops/swiglu.h"

namespace sf::model {
namespace {

// [B, S, ..]: what is convolved (q, k, v), the output's gate, and the step's two scalars of each value head.
struct Projected {
  at::Tensor qkv, z, b, a;
};

class DeltaNet {
 public:
  explicit DeltaNet(const arch::Decoder& decoder) : net_(decoder.delta), eps_(decoder.rms_eps) {}

  at::Tensor operator()(const Given& given, const at::Tensor& padded) const {
    const at::Tensor x = given.without_padding(padded);
    const Projected in = net_.grouped ? grouped(given, x) : apart(given, x);
    const at::Tensor mixed = ops::conv_silu(in.qkv, given.weight("linear_attn.conv1d").squeeze(1));
    const at::Tensor beta = at::sigmoid(in.b).to(at::kFloat);
    const at::Tensor rate = at::exp(given.parameter("linear_attn.A_log").to(at::kFloat)).neg();
    const at::Tensor decay = at::softplus(in.a.to(at::kFloat).add(given.parameter("linear_attn.dt_bias"))).mul(rate);
    const ops::DeltaHeads heads{net_.key_heads, net_.value_heads, net_.key_dim, net_.value_dim};
    const at::Tensor seen = ops::delta_rule(mixed, decay, beta, heads);
    return given.project(gated(given, seen, in.z).flatten(-2), "linear_attn.out_proj");
  }

 private:
  Projected apart(const Given& given, const at::Tensor& x) const {
    return {given.project(x, "linear_attn.in_proj_qkv"), given.project(x, "linear_attn.in_proj_z"),
            given.project(x, "linear_attn.in_proj_b"), given.project(x, "linear_attn.in_proj_a")};
  }

  // Rows of both projections lie by key head: its q, k, values and gates; its betas and decays.
  Projected grouped(const Given& given, const at::Tensor& x) const {
    const int64_t dk = net_.key_dim, group = net_.value_heads / net_.key_heads, dv = group * net_.value_dim;
    at::Tensor qkvz = given.project(x, "linear_attn.in_proj_qkvz").unflatten(-1, {net_.key_heads, 2 * dk + 2 * dv});
    at::Tensor ba = given.project(x, "linear_attn.in_proj_ba").unflatten(-1, {net_.key_heads, 2 * group});
    auto part = [](const at::Tensor& of, int64_t first, int64_t width) {
      return of.narrow(-1, first, width).flatten(-2);
    };
    return {at::cat({part(qkvz, 0, dk), part(qkvz, dk, dk), part(qkvz, 2 * dk, dv)}, -1), part(qkvz, 2 * dk + dv, dv),
            part(ba, 0, group), part(ba, group, group)};
  }

  at::Tensor gated(const Given& given, const at::Tensor& seen, const at::Tensor& z) const {
    const at::Tensor normed = ops::rms_norm(seen, given.weight("linear_attn.norm"), eps_);
    const at::Tensor gate = z.unflatten(-1, {net_.value_heads, net_.value_dim});
    if (!net_.sigmoid_gate) return ops::swiglu(gate, normed);
    return normed.to(at::kFloat).mul(at::sigmoid(gate.to(at::kFloat))).to(seen.scalar_type());
  }

  arch::DeltaNet net_;
  double eps_;
};

}  // namespace

Part delta_net_part(const arch::Decoder& decoder) {
  return DeltaNet(decoder);
}

}  // namespace sf::model
