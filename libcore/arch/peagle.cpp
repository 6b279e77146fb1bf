// SPDX-License-Identifier: Apache-2.0
#include "arch/peagle.h"

#include <fmt/format.h>

#include "arch/config_check.h"
#include "arch/eagle3.h"
#include "base/error.h"

namespace sf::arch {
namespace {

class Builder {
 public:
  explicit Builder(const Peagle& draft) : d_(draft) { spec_.family = "peagle"; }

  void open(std::string name, std::vector<std::string> reads, std::vector<std::string> writes) {
    spec_.segments.push_back({std::move(name), {}, std::move(reads), std::move(writes), 0});
  }
  void add(std::string name, Shape shape, std::string init, bool trainable = true) {
    if (shape.size() == 2)
      spec_.segments.back().flops_per_token += 2.0 * static_cast<double>(shape[0]) * static_cast<double>(shape[1]);
    spec_.segments.back().parameters.push_back(name);
    spec_.parameters.push_back({std::move(name), std::move(shape), trainable, std::move(init)});
  }

  void input() {
    open("input", {"token_ids", "cod", "hidden_state"}, {"embedded", "hidden.0"});
    add("embed_tokens.weight", {d_.vocab, d_.hidden}, "copy:model.embed_tokens.weight");
    spec_.segments.back().flops_per_token = 0;  // looked up
    add("fc.weight", {d_.hidden, 3 * d_.target_hidden}, kMatrix);
    add("mask_hidden", {1, 1, 3 * d_.target_hidden}, kMatrix);
  }
  void layer(int64_t i) {
    std::string before = fmt::format("hidden.{}", i), at = fmt::format("layers.{}.", i);
    std::vector<std::string> reads{before, "cod"};
    if (i == 0) reads.emplace_back("embedded");
    open(fmt::format("layers.{}", i), std::move(reads), {fmt::format("hidden.{}", i + 1)});
    int64_t q = d_.heads * d_.head_dim, kv = d_.kv_heads * d_.head_dim, in = i == 0 ? 2 * d_.hidden : d_.hidden;
    if (i == 0) add(at + "hidden_norm.weight", {d_.hidden}, "ones");
    add(at + "input_layernorm.weight", {d_.hidden}, "ones");
    add(at + "self_attn.q_proj.weight", {q, in}, kMatrix);
    add(at + "self_attn.k_proj.weight", {kv, in}, kMatrix);
    add(at + "self_attn.v_proj.weight", {kv, in}, kMatrix);
    add(at + "self_attn.o_proj.weight", {d_.hidden, q}, kMatrix);
    add(at + "post_attention_layernorm.weight", {d_.hidden}, "ones");
    add(at + "mlp.gate_proj.weight", {d_.intermediate, d_.hidden}, kMatrix);
    add(at + "mlp.up_proj.weight", {d_.intermediate, d_.hidden}, kMatrix);
    add(at + "mlp.down_proj.weight", {d_.hidden, d_.intermediate}, kMatrix);
  }
  void head() {
    open("head",
         {fmt::format("hidden.{}", d_.layers), "label_rows", "teacher_rows", "label_depths", "final_norm",
          "target_top1", "target_lse", "label_weight"},
         {"loss", "depth_sums"});
    add("norm.weight", {d_.hidden}, "ones");
    add("lm_head.weight", {d_.draft_vocab, d_.hidden}, kMatrix);
  }
  ModelSpec spec() {
    spec_.buffers = {{"t2d", {d_.vocab}, Dtype::kBool, true},
                     {"d2t", {d_.draft_vocab}, Dtype::kI64, true},
                     rotary_buffer(d_.rope, d_.head_dim, d_.max_positions)};
    return std::move(spec_);
  }
  ModelSpec& so_far() { return spec_; }

 private:
  static constexpr const char* kMatrix = "normal:0.02";
  const Peagle& d_;
  ModelSpec spec_;
};

}  // namespace

Peagle peagle_from_config(const Json& config) {
  check_architecture(config, kPeagleArchitecture);
  // The input is EAGLE3's: read as one of a single layer, then the rest.
  Json input = config;
  input.set("architectures", Json()).set("num_hidden_layers", 1);
  Eagle3 first = eagle3_from_config(input);
  Peagle d;
  static_cast<DraftShape&>(d) = first;
  d.layers = positive(config, "num_hidden_layers", 4, 4096);
  d.draft_vocab = first.draft_vocab;
  d.target_hidden = first.target_hidden;
  d.capture_layers = first.capture_layers;
  d.norm_before_residual = config.get_bool("norm_before_residual", false);
  d.mask_token = config.get_int("mask_token_id", -1);
  SF_CHECK(d.mask_token >= -1 && d.mask_token < d.vocab, Exit::kConfig,
           "config.json: mask_token_id = {} is out of range, the vocabulary ends at {}", d.mask_token, d.vocab);
  return d;
}

Json peagle_to_config(const Peagle& d) {
  Eagle3 input;
  static_cast<DraftShape&>(input) = d;
  input.draft_vocab = d.draft_vocab;
  input.target_hidden = d.target_hidden;
  input.capture_layers = d.capture_layers;
  Json config = eagle3_to_config(input);
  config.set("architectures", Json(Json::Array{Json(kPeagleArchitecture)})).set("num_hidden_layers", d.layers);
  config.set("norm_before_residual", d.norm_before_residual);
  if (d.mask_token >= 0) config.set("mask_token_id", d.mask_token);
  return config;
}

Peagle peagle_for_target(const Decoder& target, int64_t draft_vocab, int64_t layers) {
  Eagle3 input = eagle3_for_target(target, draft_vocab);
  Peagle d;
  static_cast<DraftShape&>(d) = input;
  d.layers = layers;
  d.draft_vocab = draft_vocab;
  d.target_hidden = input.target_hidden;
  d.capture_layers = input.capture_layers;
  return d;
}

ModelSpec describe(const Peagle& draft) {
  Builder builder(draft);
  builder.input();
  for (int64_t i = 0; i < draft.layers; ++i) builder.layer(i);
  builder.head();
  return builder.spec();
}

ModelSpec describe_training(const Peagle& draft) {
  Builder builder(draft);
  builder.open("rows", {"input_ids", "loss_mask", "lengths", "target_top1", "cod_anchors", "cod_depths"},
               {"cod", "token_ids", "label_rows", "teacher_rows", "label_depths"});
  builder.input();
  for (int64_t i = 0; i < draft.layers; ++i) builder.layer(i);
  builder.head();
  builder.add(kTargetHead, {draft.draft_vocab, draft.target_hidden}, "", false);
  builder.so_far().tables = {{kTargetHead, false, true, true}};
  return builder.spec();
}

}  // namespace sf::arch
