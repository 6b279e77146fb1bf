// SPDX-License-Identifier: Apache-2.0
// Random models small enough for a unit test, with laws that are neither flat nor one-hot.
#pragma once
#include <ATen/ops/empty.h>

#include <string>
#include <vector>

#include "arch/decoder.h"
#include "arch/eagle3.h"
#include "base/rng.h"
#include "gen/draft_eagle3.h"
#include "gen/target.h"
#include "tensor/threads.h"

namespace sf::gen::tiny {

// Work this small gains nothing from a second thread, and waits for it on a busy machine.
inline const bool kOneThread = (tensor::set_threads(1), true);

inline arch::Decoder decoder(int64_t vocab = 37, int64_t layers = 4) {
  arch::Decoder d;
  d.family = "qwen3", d.architecture = "Qwen3ForCausalLM";
  d.vocab = vocab, d.hidden = 32, d.intermediate = 48, d.layers = layers;
  d.heads = 4, d.kv_heads = 2, d.head_dim = 16, d.max_positions = 4096;
  d.qk_norm = d.qkv_bias = true;
  d.windows.assign(static_cast<size_t>(layers), 0);
  if (layers > 1) d.windows[1] = 6;
  return d;
}

// Layers 0 and 2 have a router of eleven experts, of which each token takes three; all tokens pass one more.
inline arch::Decoder routed_decoder() {
  arch::Decoder d = decoder();
  d.family = "qwen2_moe", d.architecture = "Qwen2MoeForCausalLM";
  d.experts = {.count = 11, .chosen = 3, .width = 24, .shared_width = 40, .normalise = true};
  d.experts.layers = {true, false, true, false};
  return d;
}

// Delta, attention, delta, attention; the first family's projections lie by key head, the second's routes.
inline arch::Decoder hybrid(bool grouped) {
  arch::Decoder d = decoder();
  d.family = grouped ? "qwen3_next" : "qwen3_5_moe_text";
  d.qkv_bias = false, d.windows.assign(4, 0);
  d.gated_attention = d.centred_norms = true;
  d.rope.partial = 0.5;
  d.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12, .taps = 4, .grouped = grouped};
  d.delta.layers = {true, false, true, false};
  if (grouped) return d;
  d.experts = {.count = 5, .chosen = 2, .width = 24, .shared_width = 16, .normalise = true};
  d.experts.layers.assign(4, true);
  return d;
}

inline at::Tensor random(const std::string& name, const Shape& shape, float scale, float mean) {
  at::Tensor out = at::empty(shape, at::kFloat);
  const Rng rng(11, name);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] = mean + scale * rng.normal(static_cast<uint64_t>(i));
  return out;
}

inline model::Tensors weights(const arch::ModelSpec& spec, float scale = 0.25f) {
  model::Tensors all;
  for (const arch::Parameter& p : spec.parameters)
    all[p.name] = random(p.name, p.shape, scale, p.init == "ones" ? 1.f : 0.f);
  return all;
}

inline Target target(Dtype compute = Dtype::kF32, const arch::Decoder& d = decoder()) {
  const model::Tensors all = weights(arch::describe(d));
  return Target(d, Weights(all, compute));
}

inline arch::Eagle3 draft_shape(const arch::Decoder& d, int64_t draft_vocab) {
  arch::Decoder deep = d;  // the default capture layers want four of them; these tests choose their own
  deep.layers = 4;
  arch::Eagle3 shape = arch::eagle3_for_target(deep, draft_vocab);
  shape.capture_layers = {1, (d.layers + 1) / 2, d.layers};
  return shape;
}

// Its vocabulary: the whole target's, or the odd ids (target id = 2 i + 1).
inline Eagle3Draft draft(const Target& target, int64_t draft_vocab) {
  const arch::Eagle3 shape = draft_shape(target.decoder(), draft_vocab);
  model::Tensors all = weights(arch::describe(shape));
  all.erase("embed_tokens.weight");  // the target's
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < draft_vocab; ++i) offsets.push_back(draft_vocab == shape.vocab ? 0 : i + 1);
  return Eagle3Draft(shape, Weights(all, target.compute()), offsets, target);
}

inline std::vector<int32_t> ids(int64_t count, uint64_t seed, int64_t vocab = 37) {
  std::vector<int32_t> out;
  const Rng rng(seed, "ids");
  for (int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab), static_cast<uint64_t>(i))));
  return out;
}

}  // namespace sf::gen::tiny
