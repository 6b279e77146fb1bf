// SPDX-License-Identifier: Apache-2.0
#include "arch/dflash2.h"

#include <algorithm>

#include "arch/block_spec.h"
#include "arch/config_check.h"
#include "base/error.h"

namespace sf::arch {
namespace {

void convolutions(BlockSpec& builder, const Dflash2& d, const std::string& prefix) {
  for (const char* module : {"attention_conv.", "mlp_conv."}) {
    // At first a convolution passes its input: tap 0 is one, and the input adds nothing.
    builder.add(prefix + module + "base_kernel", {2, d.taps, d.hidden}, "tap:0");
    builder.add(prefix + module + "kernel_projection.weight", {2 * d.taps * (d.hidden / d.group), d.hidden}, "zeros");
  }
}

// In the open segment.
void selector(BlockSpec& builder, const Dflash2& d) {
  builder.add("candidate_selector.predecessor_codebook", {d.vocab, d.rank}, "normal:0.02");
  builder.add("candidate_selector.successor_codebook", {d.vocab, d.rank}, "zeros");
  builder.matrix("candidate_selector.hidden_projection.weight", d.rank, d.hidden);
}

}  // namespace

Dflash2 dflash2_from_config(const Json& config) {
  check_architecture(config, kDflash2Architecture);
  const Json* found = config.find("dflash_config");
  Json own = found && !found->is_null() ? *found : Json::object(), whole = config;
  if (const Json* block = own.find("block_size")) {
    SF_CHECK(!config.contains("block_size") || config.at("block_size") == *block, Exit::kConfig,
             "config.json: block_size is {} and {} in dflash_config", config.at("block_size").dump(), block->dump());
    whole.set("block_size", *block);
  } else if (!config.contains("block_size")) {
    whole.set("block_size", 8);
  }
  Dflash2 d;
  static_cast<Dflash&>(d) = blocks_from_config(whole);
  d.taps = positive(own, "conv_kernel_size", 2, 64);
  d.group = positive(own, "conv_group_size", 16);
  d.rank = positive(own, "selector_rank", 256);
  d.top_k = positive(own, "selector_top_k", 16, 64);
  d.embedding_scale = own.get_double("input_embedding_scale", 1);
  d.output_multiplier = own.get_double("output_multiplier", 1);
  d.softcap = own.get_double("final_logit_softcapping", 0);
  SF_CHECK(d.hidden % d.group == 0, Exit::kConfig,
           "config.json: hidden_size = {} is no multiple of conv_group_size = {}", d.hidden, d.group);
  SF_CHECK(d.top_k <= d.vocab && d.softcap >= 0, Exit::kConfig,
           "config.json: selector_top_k = {} and final_logit_softcapping = {}: wanted at most the vocabulary, and 0 or "
           "more",
           d.top_k, d.softcap);
  return d;
}

Json dflash2_to_config(const Dflash2& d) {
  Json config = blocks_to_config(d, kDflash2Architecture), own = config.at("dflash_config");
  own.set("conv_kernel_size", d.taps).set("conv_group_size", d.group).set("selector_rank", d.rank);
  own.set("selector_top_k", d.top_k).set("is_causal", false);
  if (d.embedding_scale != 1) own.set("input_embedding_scale", d.embedding_scale);
  if (d.output_multiplier != 1) own.set("output_multiplier", d.output_multiplier);
  if (d.softcap > 0) own.set("final_logit_softcapping", d.softcap);
  return config.set("dflash_config", own);
}

ModelSpec describe(const Dflash2& draft) {
  BlockSpec builder(draft, "dflash2");
  builder.context();
  builder.layers([&](const std::string& prefix) { convolutions(builder, draft, prefix); });
  builder.open("norm", {builder.last()}, {"states"});
  builder.add("norm.weight", {draft.hidden}, "ones");
  builder.open("head", {"states"}, {"logits"});
  selector(builder, draft);
  return builder.spec();
}

ModelSpec describe_training(const Dflash2& draft, bool tied) {
  BlockSpec builder(draft, "dflash2");
  builder.blocks();
  builder.context();
  builder.embed("embed", "slot_ids", "hidden.0");
  builder.layers([&](const std::string& prefix) { convolutions(builder, draft, prefix); });
  builder.open("norm", {builder.last(), "label_slots"}, {"states"});
  builder.add("norm.weight", {draft.hidden}, "ones");
  builder.open("head",
               {"states", "token_ids", "label_slots", "label_ids", "label_offsets", "slot_weights", "selector_share"},
               {"loss", "slot_sums"});
  selector(builder, draft);
  builder.head(tied, true);
  return builder.spec();
}

}  // namespace sf::arch
