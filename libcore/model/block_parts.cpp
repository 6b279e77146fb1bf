// SPDX-License-Identifier: Apache-2.0
#include "model/block_parts.h"

#include "base/error.h"
#include "base/fault.h"
#include "model/wide_residual.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "tensor/device.h"

namespace sf::model {

const at::Tensor& need(const Tensors& tensors, std::string_view name) {
  auto found = tensors.find(name);
  SF_CHECK(found != tensors.end(), Exit::kSoftware, "a segment wants tensor \"{}\", which it was not given", name);
  return found->second;
}

BlockNames::BlockNames(std::string given, std::span<const arch::Adapter> all) : prefix(std::move(given)) {
  for (const arch::Adapter& adapter : all)
    if (adapter.parameter.starts_with(prefix)) adapters.emplace(adapter.parameter.substr(prefix.size()), adapter);
}

at::Tensor Given::project(const at::Tensor& x, std::string_view module, bool biased) const {
  at::Tensor bias;
  if (biased) bias = parameter(std::string(module) + ".bias");
  at::Tensor y = ops::linear(x, weight(module), bias);
  auto found = names_.adapters.find(std::string(module) + ".weight");
  if (found == names_.adapters.end()) return y;
  const arch::Adapter& adapter = found->second;
  at::Tensor low = ops::linear(x, need(parameters_, adapter.a));
  // Two operators: one that multiplies and adds rounds once in its vectors and twice at their ends.
  return y.add(ops::linear(low, need(parameters_, adapter.b)).mul(fault("model.adapter_unscaled") ? 1 : adapter.scale));
}

ExpertBank Given::bank(std::string_view name) const {
  ExpertBank bank(parameter(name));
  if (auto found = names_.adapters.find(name); found != names_.adapters.end())
    bank.adapt(need(parameters_, found->second.a), need(parameters_, found->second.b), found->second);
  return bank;
}

const at::Tensor* Given::mask() const {
  auto found = boundaries_.find("attention_mask");
  return found == boundaries_.end() ? nullptr : &found->second;
}

at::Tensor Given::without_padding(const at::Tensor& x) const {
  if (!mask() || fault("model.padding_convolved")) return x;
  return x.mul(tensor::beside(mask()->ne(0), x).unsqueeze(-1).to(x.scalar_type()));
}

at::Tensor norm(const arch::Decoder& decoder, const at::Tensor& x, const at::Tensor& weight, int64_t groups) {
  if (decoder.centred_norms) return ops::rms_norm_centred(x, weight, decoder.rms_eps, groups);
  SF_ASSERT(groups == 1);
  return ops::rms_norm(x, weight, decoder.rms_eps);
}

at::Tensor through(const arch::Decoder& decoder, const Given& given, const at::Tensor& residual, const Part& part,
                   std::string_view where) {
  if (decoder.wide.streams > 1) return through_streams(decoder, given, residual, part, where);
  const char* name = where == "attn" ? "input_layernorm" : "post_attention_layernorm";
  return residual.add(part(given, norm(decoder, residual, given.weight(name))));
}

at::Tensor final_state(const arch::Decoder& decoder, const Tensors& parameters, const at::Tensor& residual) {
  if (decoder.wide.streams > 1) {
    const BlockNames names("model.", {});
    return mix_streams(decoder, Given(names, parameters, {}), residual, "hyper_connection_mixer").mixed;
  }
  return norm(decoder, residual, need(parameters, "model.norm.weight"));
}

}  // namespace sf::model
