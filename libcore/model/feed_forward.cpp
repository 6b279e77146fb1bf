// SPDX-License-Identifier: Apache-2.0
// What stands behind attention in a block. Source: models_text_scoring 1.1, 3.1.
#include <ATen/ops/sigmoid.h>

#include <string>

#include "model/block_parts.h"
#include "ops/linear.h"
#include "ops/swiglu.h"

namespace sf::model {
namespace {

at::Tensor mlp(const Given& given, const at::Tensor& x, const std::string& at, bool biased) {
  at::Tensor gate = given.project(x, at + "gate_proj", biased);
  at::Tensor up = given.project(x, at + "up_proj", biased);
  return given.project(ops::swiglu(gate, up), at + "down_proj", biased);
}

at::Tensor routed(const arch::Decoder& d, const Given& given, const at::Tensor& x) {
  at::Tensor flat = x.reshape({-1, x.size(-1)});
  const ExpertBank gate_up = given.bank("mlp.experts.gate_up_proj");
  const ExpertBank down = given.bank("mlp.experts.down_proj");
  const int64_t width = d.experts.width;
  auto one = [&](int64_t expert, const at::Tensor& rows) {
    at::Tensor both = gate_up.apply(expert, rows);
    return down.apply(expert, ops::swiglu(both.narrow(1, 0, width), both.narrow(1, width, width)));
  };
  at::Tensor mixed = mix_experts(flat, ops::linear(flat, given.weight("mlp.gate")), one, d.experts);
  if (d.experts.shared_width > 0) {
    at::Tensor share = at::sigmoid(given.project(flat, "mlp.shared_expert_gate"));
    mixed = mixed.add(mlp(given, flat, "mlp.shared_expert.", d.mlp_bias).mul(share));
  }
  return mixed.view(x.sizes());
}

}  // namespace

Part feed_forward_part(const arch::Decoder& decoder, int64_t layer) {
  if (decoder.routes(layer))
    return [decoder](const Given& given, const at::Tensor& x) { return routed(decoder, given, x); };
  return [biased = decoder.mlp_bias](const Given& given, const at::Tensor& x) { return mlp(given, x, "mlp.", biased); };
}

}  // namespace sf::model
