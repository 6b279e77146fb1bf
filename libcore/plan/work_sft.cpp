// SPDX-License-Identifier: Apache-2.0
// The shadow of model/sft.cpp and the blocks of model/decoder.cpp.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "plan/shadow_experts.h"
#include "plan/shadow_ops.h"
#include "plan/work.h"

namespace sf::plan {
namespace {

// What every block is made from; it outlives them. `spread`: tokens of each expert, wherever there is a router.
struct Chain {
  const arch::Decoder& decoder;
  std::span<const arch::Adapter> adapters;
  const Spread& spread;
};

class DecoderBlock {
 public:
  DecoderBlock(Tape& tape, ShadowOps& ops, const Chain& chain, int64_t index)
      : tape_(tape),
        ops_(ops),
        d_(chain.decoder),
        spread_(chain.spread),
        index_(index),
        prefix_("model.layers." + std::to_string(index) + ".") {
    for (const arch::Adapter& adapter : chain.adapters)
      if (adapter.parameter.starts_with(prefix_)) adapters_.emplace(adapter.parameter.substr(prefix_.size()), adapter);
  }

  NamedShades operator()(const NamedShades& p, const NamedShades& in) const {
    const Shade& before = in.at("hidden." + std::to_string(index_));
    Shade x = ops_.norm(before, p.at(prefix_ + "input_layernorm.weight"));
    Shade h = ops_.add(before, attention(p, x));
    x = ops_.norm(h, p.at(prefix_ + "post_attention_layernorm.weight"));
    Shade y = d_.routes(index_) ? experts(p, x) : mlp(p, x, "mlp.");
    return {{"hidden." + std::to_string(index_ + 1), ops_.add(h, y)}};
  }

 private:
  Shade project(const NamedShades& p, const Shade& x, const std::string& module, bool biased) const {
    Shade y = ops_.linear(x, p.at(prefix_ + module + ".weight"), biased ? &p.at(prefix_ + module + ".bias") : nullptr);
    auto adapter = adapters_.find(module + ".weight");
    if (adapter == adapters_.end()) return y;
    Shade low = ops_.linear(x, p.at(adapter->second.a));
    return ops_.add(y, ops_.scaled(ops_.linear(low, p.at(adapter->second.b))));
  }
  Shade heads(const NamedShades& p, const Shade& x, const std::string& module, int64_t count) const {
    Shade packed = project(p, x, "self_attn." + module + "_proj", d_.qkv_bias);
    Shape heads{x.shape[0], count, x.shape[1], d_.head_dim};
    if (!d_.qk_norm || module == "v") return ops_.split_heads(packed, heads);
    Shade split = ops_.reshape(packed, {x.shape[0], x.shape[1], count, d_.head_dim});
    Shade normed = ops_.norm(split, p.at(prefix_ + "self_attn." + module + "_norm.weight"));
    return ops_.transposed(normed).as(heads);
  }
  Shade attention(const NamedShades& p, const Shade& x) const {
    Shade q = heads(p, x, "q", d_.heads), k = heads(p, x, "k", d_.kv_heads), v = heads(p, x, "v", d_.kv_heads);
    q = ops_.rotary(q, false);
    k = ops_.rotary(k, false);
    Shade mixed = ops_.attention(q, {k}, {v});
    return project(p, ops_.merge_heads(mixed, {x.shape[0], x.shape[1], d_.heads * d_.head_dim}), "self_attn.o_proj",
                   d_.o_bias);
  }
  Shade mlp(const NamedShades& p, const Shade& x, const std::string& at) const {
    Shade gate = project(p, x, at + "gate_proj", d_.mlp_bias), up = project(p, x, at + "up_proj", d_.mlp_bias);
    return project(p, ops_.swiglu(gate, up), at + "down_proj", d_.mlp_bias);
  }
  ShadowBank bank(const NamedShades& p, const std::string& name) const {
    ShadowBank bank(tape_, ops_, p.at(prefix_ + name));
    if (auto found = adapters_.find(name); found != adapters_.end())
      bank.adapt(p.at(found->second.a), p.at(found->second.b), found->second);
    return bank;
  }
  Shade experts(const NamedShades& p, const Shade& x) const {
    Shade flat = ops_.reshape(x, {x.elements() / x.shape.back(), x.shape.back()});
    ShadowBank gate_up = bank(p, "mlp.experts.gate_up_proj"), down = bank(p, "mlp.experts.down_proj");
    Shade scores = ops_.linear(flat, p.at(prefix_ + "mlp.gate.weight"));
    Shade mixed = ShadowExperts{d_.experts, gate_up, down}.mix(tape_, ops_, flat, scores, spread_);
    if (d_.experts.shared_width > 0) {
      Shade share = ops_.from_result(project(p, flat, "mlp.shared_expert_gate", false));
      mixed = ops_.add(mixed, ops_.times(mlp(p, flat, "mlp.shared_expert."), share, flat.shape));
    }
    return ops_.reshape(mixed, x.shape);
  }

  Tape& tape_;
  ShadowOps& ops_;
  const arch::Decoder& d_;
  const Spread& spread_;
  int64_t index_;
  std::string prefix_;
  std::map<std::string, arch::Adapter> adapters_;
};

NamedShades head(Tape& tape, ShadowOps& ops, const arch::Segment& segment, const SftBatch& batch, const NamedShades& p,
                 const NamedShades& in) {
  Shade rows = tape.make({batch.labels}, Dtype::kI64), states = in.at(segment.reads[0]);
  int64_t all = batch.rows * batch.width;
  states = ops.reshape(states, {all, states.shape.back()});
  if (batch.labels != all) states = ops.index_select(states, batch.labels);
  Shade normed = ops.norm(states, p.at("model.norm.weight"));
  Shade wanted = tape.make({batch.labels}, Dtype::kI64), weight = tape.make({batch.labels}, Dtype::kF32);
  Shade loss = ops.linear_cross_entropy(normed, p.at(segment.parameters.back()));
  return {{"loss", loss}, {"sums", tape.make({2}, Dtype::kF64)}};
}

uint64_t work_of(const Chain& chain, const arch::ModelSpec& spec, const Schedule& plan, const SftBatch& batch) {
  Tape tape;
  ShadowOps ops(tape);
  std::vector<ShadowSegment> segments(spec.segments.size());
  segments.front().forward = [&](const NamedShades& p, const NamedShades&) -> NamedShades {
    return {{"hidden.0", ops.embedding(p.begin()->second, {batch.rows, batch.width})}};
  };
  for (int64_t layer = 0; layer < chain.decoder.layers; ++layer)
    segments[static_cast<size_t>(layer + 1)].forward = DecoderBlock(tape, ops, chain, layer);
  segments.back().forward = [&](const NamedShades& p, const NamedShades& in) {
    return head(tape, ops, spec.segments.back(), batch, p, in);
  };
  ShadowPass(tape, spec, plan, std::move(segments)).run({}, "loss");
  return with_margin(tape);
}

}  // namespace

SftBatch full_sft_batch(int64_t rows, int64_t width) {
  return {rows, width, rows * std::max<int64_t>(width - 1, 1), {}};  // a row's last token has no label
}

uint64_t sft_work(const arch::Decoder& decoder, const arch::ModelSpec& spec, const Schedule& plan,
                  const SftBatch& batch, std::span<const arch::Adapter> adapters) {
  if (decoder.experts.count == 0 || !batch.experts.empty())
    return work_of({decoder, adapters, batch.experts}, spec, plan, batch);
  uint64_t most = 0;
  for (const Spread& spread : widest_spreads(decoder.experts, batch.rows * batch.width))
    most = std::max(most, work_of({decoder, adapters, spread}, spec, plan, batch));
  return most;
}

}  // namespace sf::plan
