// SPDX-License-Identifier: Apache-2.0
// The shadow of model/sft.cpp and the blocks of model/decoder.cpp.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
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
    Shade h = ops_.add(before, d_.recurs(index_) ? delta_net(p, x) : attention(p, x));
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
    return heads(p, project(p, x, "self_attn." + module + "_proj", d_.qkv_bias), x.shape, module, count);
  }
  Shade heads(const NamedShades& p, const Shade& packed, const Shape& rows, const std::string& module,
              int64_t count) const {
    Shape heads{rows[0], count, rows[1], d_.head_dim};
    if (!d_.qk_norm || module == "v") return ops_.split_heads(packed, heads);
    Shade split = packed.dense ? ops_.reshape(packed, {rows[0], rows[1], count, d_.head_dim}) : packed;
    Shade normed = ops_.norm(split, p.at(prefix_ + "self_attn." + module + "_norm.weight"));
    return ops_.transposed(normed).as(heads);
  }
  Shade attention(const NamedShades& p, const Shade& x) const {
    const int64_t rows = x.shape[0], width = x.shape[1], q_width = d_.heads * d_.head_dim;
    Shade packed = project(p, x, "self_attn.q_proj", d_.qkv_bias), gate;
    if (d_.gated_attention) {
      Shape half{rows, width, d_.heads, d_.head_dim};
      gate = ops_.reshape(ops_.columns(packed, half), {rows, width, q_width});
      packed = ops_.columns(packed, half);
    }
    Shade q = heads(p, packed, x.shape, "q", d_.heads);
    Shade k = heads(p, x, "k", d_.kv_heads), v = heads(p, x, "v", d_.kv_heads);
    q = ops_.rotary(q, false);
    k = ops_.rotary(k, false);
    Shade mixed = ops_.merge_heads(ops_.attention(q, {k}, {v}), {rows, width, q_width});
    if (d_.gated_attention) mixed = ops_.times(mixed, ops_.from_result(gate), mixed.shape);
    return project(p, mixed, "self_attn.o_proj", d_.o_bias);
  }
  // q, k, v to convolve, the gate z, and each value head's b and a.
  Shades projected(const NamedShades& p, const Shade& x) const {
    const arch::DeltaNet& net = d_.delta;
    const std::string at = "linear_attn.in_proj_";
    if (!net.grouped)
      return {project(p, x, at + "qkv", false), project(p, x, at + "z", false), project(p, x, at + "b", false),
              project(p, x, at + "a", false)};
    Shade qkvz = project(p, x, at + "qkvz", false), ba = project(p, x, at + "ba", false);
    auto part = [&](const Shade& of, int64_t extent) {
      Shape shape{x.shape[0], x.shape[1], extent};
      return ops_.reshape(ops_.columns(of, shape), shape);
    };
    Shades qkv{part(qkvz, net.keys()), part(qkvz, net.keys()), part(qkvz, net.values())};
    return {ops_.joined(qkv, {x.shape[0], x.shape[1], net.channels()}), part(qkvz, net.values()),
            part(ba, net.value_heads), part(ba, net.value_heads)};
  }
  Shade delta_net(const NamedShades& p, const Shade& x) const {
    const arch::DeltaNet& net = d_.delta;
    auto parameter = [&](const char* name) { return p.at(prefix_ + "linear_attn." + name); };
    const Shades in = projected(p, x);
    Shade mixed = ops_.conv_silu(in[0], parameter("conv1d.weight"), net.taps);
    Shade beta = ops_.wide(ops_.from_result(in[2]));
    Shade decay = ops_.plus(ops_.wide(in[3]), ops_.wide(parameter("dt_bias")), in[3].shape);
    decay = ops_.times(ops_.from_input(decay), ops_.from_result(ops_.wide(parameter("A_log"))), decay.shape);
    Shade seen = ops_.delta_rule(mixed, decay, beta, net.values(), net.key_dim * net.value_dim);
    const Shape by_head{x.shape[0], x.shape[1], net.value_heads, net.value_dim};
    Shade normed = ops_.norm(ops_.reshape(seen, by_head), parameter("norm.weight")),
          gate = ops_.reshape(in[1], by_head);
    Shade gated;
    if (net.sigmoid_gate)
      gated = ops_.times(ops_.wide(normed), ops_.from_result(ops_.wide(gate)), by_head);
    else
      gated = ops_.swiglu(gate, normed);
    return project(p, ops_.reshape(gated, {x.shape[0], x.shape[1], net.values()}), "linear_attn.out_proj", false);
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

bool knows_work(const arch::Decoder& decoder) {
  return decoder.wide.streams == 1;
}

uint64_t sft_work(const arch::Decoder& decoder, const arch::ModelSpec& spec, const Schedule& plan,
                  const SftBatch& batch, std::span<const arch::Adapter> adapters) {
  SF_CHECK(knows_work(decoder), Exit::kConfig, "the memory that training the {} family takes cannot be predicted",
           decoder.family);
  if (decoder.experts.count == 0 || !batch.experts.empty())
    return work_of({decoder, adapters, batch.experts}, spec, plan, batch);
  uint64_t most = 0;
  for (const Spread& spread : widest_spreads(decoder.experts, batch.rows * batch.width))
    most = std::max(most, work_of({decoder, adapters, spread}, spec, plan, batch));
  return most;
}

}  // namespace sf::plan
