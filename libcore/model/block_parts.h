// SPDX-License-Identifier: Apache-2.0
// The parts that a decoder's block is put together from: something that mixes tokens (attention or a delta net), a
// feed-forward (one MLP or routed experts), and the residual around both.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "arch/adapter.h"
#include "arch/decoder.h"
#include "model/experts.h"
#include "model/rotary.h"
#include "model/segment.h"

namespace sf::model {

const at::Tensor& need(const Tensors& tensors, std::string_view name);  // kSoftware if it was not given

// What is constant about a block's names: their prefix, "model.layers.3.", and its adapters by parameter.
struct BlockNames {
  BlockNames(std::string prefix, std::span<const arch::Adapter> adapters);
  std::string prefix;
  std::map<std::string, arch::Adapter, std::less<>> adapters;  // "mlp.up_proj.weight"
};

// What one call of a block is given; a look at it, valid during the call.
class Given {
 public:
  Given(const BlockNames& names, const Tensors& parameters, const Tensors& boundaries)
      : names_(names), parameters_(parameters), boundaries_(boundaries) {}

  const at::Tensor& boundary(std::string_view name) const { return need(boundaries_, name); }
  const at::Tensor& parameter(std::string_view name) const { return need(parameters_, full(name)); }
  const at::Tensor& weight(std::string_view module) const { return parameter(std::string(module) + ".weight"); }
  // A linear layer, with its adapter if it has one.
  at::Tensor project(const at::Tensor& x, std::string_view module, bool biased = false) const;
  ExpertBank bank(std::string_view name) const;
  // x [B, S, ..] with zeros at padding, as attention_mask has it; x itself where there is none.
  at::Tensor without_padding(const at::Tensor& x) const;
  const at::Tensor* mask() const;  // null: no padding

 private:
  std::string full(std::string_view name) const { return names_.prefix + std::string(name); }
  const BlockNames& names_;
  const Tensors& parameters_;
  const Tensors& boundaries_;
};

// x [B, S, H] -> [B, S, H].
using Part = std::function<at::Tensor(const Given& given, const at::Tensor& x)>;

Part attention_part(const arch::Decoder& decoder, int64_t layer, std::shared_ptr<const Rotary> rotary);
Part delta_net_part(const arch::Decoder& decoder);
Part feed_forward_part(const arch::Decoder& decoder, int64_t layer);

// The family's RMSNorm: of `groups` vectors side by side.
at::Tensor norm(const arch::Decoder& decoder, const at::Tensor& x, const at::Tensor& weight, int64_t groups = 1);

// The residual [B, S, streams * H] with a part's result added; `where`: "attn" or "mlp".
at::Tensor through(const arch::Decoder& decoder, const Given& given, const at::Tensor& residual, const Part& part,
                   std::string_view where);
// What the head multiplies: [.., streams * H] -> [.., H].
at::Tensor final_state(const arch::Decoder& decoder, const Tensors& parameters, const at::Tensor& residual);

}  // namespace sf::model
