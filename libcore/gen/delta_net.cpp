// SPDX-License-Identifier: Apache-2.0
#include "gen/delta_net.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "gen/block.h"
#include "gen/gates.h"
#include "ops/norm.h"
#include "ops/swiglu.h"

namespace sf::gen {
namespace {

// -e^A softplus(a + dt), [rows, heads]; element by element.
at::Tensor decay_of(const at::Tensor& a, const at::Tensor& a_log, const at::Tensor& dt_bias) {
  at::Tensor out = a.to(at::kFloat, false, true).contiguous();
  const int64_t heads = out.size(1);
  float* values = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    const float x = values[i] + dt_bias.const_data_ptr<float>()[i % heads];
    const float soft = x > 20 ? x : std::log1p(std::exp(x));
    values[i] = -std::exp(a_log.const_data_ptr<float>()[i % heads]) * soft;
  }
  return out;
}

std::vector<std::string> inputs_of(const arch::DeltaNet& shape, const std::string& prefix) {
  std::vector<std::string> names;
  for (const char* part : {"qkv", "z", "b", "a"})
    if (!shape.grouped) names.push_back(prefix + "in_proj_" + part + ".weight");
  for (const char* part : {"qkvz", "ba"})
    if (shape.grouped) names.push_back(prefix + "in_proj_" + part + ".weight");
  return names;
}

std::vector<int64_t> widths_of(const arch::DeltaNet& s) {
  if (s.grouped) return {s.channels() + s.values(), 2 * s.value_heads};
  return {s.channels(), s.values(), s.value_heads, s.value_heads};
}

}  // namespace

DeltaNet::DeltaNet(const Weights& weights, const std::string& prefix, const arch::DeltaNet& shape, int64_t in,
                   double eps)
    : shape_(shape), eps_(eps), in_(weights, inputs_of(shape, prefix), widths_of(shape), in) {
  const std::string out = prefix + "out_proj.weight";
  out_ = Linear(weights, std::span(&out, 1), std::span(&in, 1), shape.values());
  taps_ = weights.get(prefix + "conv1d.weight", {shape.channels(), 1, shape.taps}).squeeze(1);
  a_log_ = weights.get(prefix + "A_log", {shape.value_heads}).to(at::kFloat).contiguous();
  dt_bias_ = weights.get(prefix + "dt_bias", {shape.value_heads}).to(at::kFloat).contiguous();
  norm_ = weights.get(prefix + "norm.weight", {shape.value_dim});
}

DeltaNet::Projected DeltaNet::project(const at::Tensor& x) const {
  const arch::DeltaNet& s = shape_;
  const at::Tensor all = in_.apply(x);
  at::Tensor qkv, z, b, a;
  if (s.grouped) {
    const int64_t group = s.value_heads / s.key_heads, dk = s.key_dim, dv = group * s.value_dim;
    const at::Tensor qkvz = all.narrow(1, 0, s.channels() + s.values()).unflatten(1, {s.key_heads, 2 * dk + 2 * dv});
    const at::Tensor ba = all.narrow(1, s.channels() + s.values(), 2 * s.value_heads).unflatten(1, {s.key_heads, -1});
    auto part = [](const at::Tensor& of, int64_t first, int64_t width) {
      return of.narrow(2, first, width).flatten(1);
    };
    qkv = at::cat({part(qkvz, 0, dk), part(qkvz, dk, dk), part(qkvz, 2 * dk, dv)}, 1);
    z = part(qkvz, 2 * dk + dv, dv), b = part(ba, 0, group), a = part(ba, group, group);
  } else {
    qkv = all.narrow(1, 0, s.channels()), z = all.narrow(1, s.channels(), s.values());
    b = all.narrow(1, s.channels() + s.values(), s.value_heads);
    a = all.narrow(1, s.channels() + s.values() + s.value_heads, s.value_heads);
  }
  return {{qkv, decay_of(a, a_log_, dt_bias_), sigmoid(b).to(at::kFloat)},
          z.unflatten(1, {s.value_heads, s.value_dim})};
}

at::Tensor DeltaNet::mix(const at::Tensor& x, const Rows& rows, int64_t layer) const {
  const Projected in = project(x);
  std::vector<at::Tensor> parts;
  for (const Rows::Run& run : rows.runs()) {
    Recurrent& state = run.cache->recurrent(layer);
    const DeltaRows own = in.rows.narrow(run.row, run.count);
    if (run.node <= 0) state.settle(run.first);
    if (run.node < 0) {
      parts.push_back(state.advance(own));
      continue;
    }
    std::vector<std::vector<int32_t>> paths;
    for (int64_t i = 0; i < run.count; ++i) paths.push_back(run.cache->path_to(static_cast<int32_t>(run.node + i)));
    parts.push_back(state.branch(own, paths));
  }
  const at::Tensor normed = ops::rms_norm(at::cat(parts), norm_, eps_);
  const at::Tensor gated = shape_.sigmoid_gate ? gated_by_sigmoid(normed, in.z) : ops::swiglu(in.z, normed);
  return out_.apply(gated.flatten(1));
}

size_t DeltaNet::adapt(const LiveAdapter& adapter) {
  return in_.adapt(adapter) + out_.adapt(adapter);
}

Recurrent DeltaNet::fresh() const {
  return Recurrent({shape_.key_heads, shape_.value_heads, shape_.key_dim, shape_.value_dim}, taps_);
}

}  // namespace sf::gen
