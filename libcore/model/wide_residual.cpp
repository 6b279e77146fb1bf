// SPDX-License-Identifier: Apache-2.0
#include "model/wide_residual.h"

#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>

#include <string>

namespace sf::model {
namespace {

// [.., streams * H] as [.., streams, H].
at::Tensor streams_of(const arch::Decoder& d, const at::Tensor& x) {
  return x.unflatten(-1, {d.wide.streams, d.hidden});
}

}  // namespace

MixedStreams mix_streams(const arch::Decoder& d, const Given& given, const at::Tensor& residual,
                         std::string_view module) {
  const std::string at(module);
  const double streams = static_cast<double>(d.wide.streams);
  at::Tensor normed = norm(d, residual, given.weight(at + ".hc_norm"), d.wide.streams);
  at::Tensor low = at::silu(given.project(normed, at + ".input_mix_weight_down").div(streams));
  at::Tensor gate = at::sigmoid(given.project(low, at + ".input_mix_weight_up"));
  return {normed, streams_of(d, gate.mul(normed)).mean(-2)};
}

at::Tensor through_streams(const arch::Decoder& d, const Given& given, const at::Tensor& residual, const Part& part,
                           std::string_view where) {
  const std::string module = std::string(where) + "_hyper_connection";
  const MixedStreams in = mix_streams(d, given, residual, module);
  const double streams = static_cast<double>(d.wide.streams);
  at::Tensor share = at::sigmoid(given.project(in.normed, module + ".block_inject_weight").div(streams)).mul(2);
  at::Tensor added = part(given, in.mixed).unsqueeze(-2).mul(share.unsqueeze(-1));
  return residual.add(added.flatten(-2));
}

at::Tensor as_streams(const arch::Decoder& d, const at::Tensor& x) {
  if (d.wide.streams == 1) return x;
  std::vector<int64_t> repeats(static_cast<size_t>(x.dim()), 1);
  repeats.back() = d.wide.streams;
  return x.repeat(repeats);
}

}  // namespace sf::model
