// SPDX-License-Identifier: Apache-2.0
#include "arch/block_spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace sf::arch {
namespace {

constexpr const char* kMatrixInit = "normal:0.02";

}  // namespace

BlockSpec::BlockSpec(const Dflash& draft, std::string family) : d_(draft) {
  spec_.family = std::move(family);
}

void BlockSpec::open(std::string name, std::vector<std::string> reads, std::vector<std::string> writes) {
  spec_.segments.push_back({std::move(name), {}, std::move(reads), std::move(writes), 0});
}

void BlockSpec::add(std::string name, Shape shape, std::string init, bool trainable) {
  spec_.segments.back().parameters.push_back(name);
  if (!spec_.find(name)) spec_.parameters.push_back({std::move(name), std::move(shape), trainable, std::move(init)});
}

void BlockSpec::matrix(const std::string& name, int64_t out, int64_t in) {
  add(name, {out, in}, kMatrixInit);
  spec_.segments.back().flops_per_token += 2.0 * static_cast<double>(out) * static_cast<double>(in);
}

void BlockSpec::linear(const std::string& module, int64_t out, int64_t in, bool bias) {
  matrix(module + ".weight", out, in);
  if (bias) add(module + ".bias", {out}, "zeros");
}

void BlockSpec::blocks() {
  open("blocks", {"input_ids", "loss_mask", "lengths", "anchors"},
       {"blocks", "slot_ids", "token_ids", "context_rows", "label_slots", "label_ids", "label_offsets"});
}

void BlockSpec::context() {
  open("context", {"hidden_states", "context_rows"}, {"context"});
  auto captured = static_cast<int64_t>(d_.capture_layers.size());
  linear("fc", d_.hidden, std::max<int64_t>(captured, 1) * d_.hidden, false);
  add("hidden_norm.weight", {d_.hidden}, "ones");
}

Table& BlockSpec::table(const std::string& parameter) {
  for (Table& known : spec_.tables)
    if (known.parameter == parameter) return known;
  return spec_.tables.emplace_back(Table{parameter});
}

void BlockSpec::embed(const std::string& segment, const std::string& ids, const std::string& rows) {
  open(segment, {ids}, {rows});
  add(kTargetEmbedding, {d_.vocab, d_.hidden}, "", false);
  table(kTargetEmbedding).looked_up = true;
}

void BlockSpec::layers(const std::function<void(const std::string& prefix)>& more) {
  for (int64_t i = 0; i < d_.layers; ++i) {
    layer(i);
    if (more) more(fmt::format("layers.{}.", i));
  }
}

void BlockSpec::layer(int64_t i) {
  open(fmt::format("layers.{}", i), {fmt::format("hidden.{}", i), "context", "blocks"},
       {fmt::format("hidden.{}", i + 1)});
  std::string at = fmt::format("layers.{}.", i);
  int64_t q = d_.heads * d_.head_dim, kv = d_.kv_heads * d_.head_dim;
  add(at + "input_layernorm.weight", {d_.hidden}, "ones");
  linear(at + "self_attn.q_proj", q, d_.hidden, d_.bias);
  linear(at + "self_attn.k_proj", kv, d_.hidden, d_.bias);
  linear(at + "self_attn.v_proj", kv, d_.hidden, d_.bias);
  add(at + "self_attn.q_norm.weight", {d_.head_dim}, "ones");
  add(at + "self_attn.k_norm.weight", {d_.head_dim}, "ones");
  linear(at + "self_attn.o_proj", d_.hidden, q, d_.bias);
  add(at + "post_attention_layernorm.weight", {d_.hidden}, "ones");
  linear(at + "mlp.gate_proj", d_.intermediate, d_.hidden, false);
  linear(at + "mlp.up_proj", d_.intermediate, d_.hidden, false);
  linear(at + "mlp.down_proj", d_.hidden, d_.intermediate, false);
}

std::string BlockSpec::last() const {
  return fmt::format("hidden.{}", d_.layers);
}

void BlockSpec::head(bool tied, bool whole) {
  if (tied) {
    spec_.aliases.push_back({kTargetHead, kTargetEmbedding});
    spec_.segments.back().parameters.push_back(kTargetHead);
  } else {
    add(kTargetHead, {d_.vocab, d_.hidden}, "", false);
  }
  Table& multiplied = table(tied ? kTargetEmbedding : kTargetHead);
  multiplied.multiplied = true;
  multiplied.in_group = multiplied.in_group || whole;
  spec_.segments.back().flops_per_token += 2.0 * static_cast<double>(d_.vocab) * static_cast<double>(d_.hidden);
}

ModelSpec BlockSpec::spec() {
  spec_.buffers.push_back(rotary_buffer(d_.rope, d_.head_dim, d_.max_positions));
  return std::move(spec_);
}

}  // namespace sf::arch
