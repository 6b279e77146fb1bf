// SPDX-License-Identifier: Apache-2.0
#include "arch/dspark.h"

#include "arch/block_spec.h"
#include "arch/config_check.h"
#include "base/error.h"

namespace sf::arch {
namespace {

std::string attention_mode(const Dflash& d) {
  return d.kv_heads < d.heads ? "gqa" : "mha";
}

// Beside the backbone, in the open segment.
void heads(BlockSpec& builder, const Dspark& d) {
  if (d.rank > 0) {
    builder.add("markov_head.markov_w1.weight", {d.vocab, d.rank}, "normal:0.02");
    builder.matrix("markov_head.markov_w2.weight", d.vocab, d.rank);
    if (d.markov == Markov::kGated) builder.linear("markov_head.gate_proj", d.rank, d.hidden + d.rank, true);
    if (d.markov == Markov::kRnn) builder.linear("markov_head.joint_proj", 3 * d.rank, 2 * d.rank + d.hidden, true);
  }
  if (d.confidence) builder.linear("confidence_head.proj", 1, d.hidden + (d.confidence_with_markov ? d.rank : 0), true);
}

}  // namespace

Markov markov_from_name(std::string_view name) {
  if (name == "vanilla") return Markov::kVanilla;
  if (name == "gated") return Markov::kGated;
  if (name == "rnn") return Markov::kRnn;
  fail(Exit::kConfig, "markov_head_type \"{}\" is unknown; known: vanilla, gated, rnn", name);
}

std::string_view name_of(Markov markov) {
  return markov == Markov::kVanilla ? "vanilla" : markov == Markov::kGated ? "gated" : "rnn";
}

Dspark dspark_from_config(const Json& config) {
  check_architecture(config, kDsparkArchitecture);
  Dspark d;
  static_cast<Dflash&>(d) = blocks_from_config(config);
  const Json* found = config.find("dflash_config");
  Json own = found && !found->is_null() ? *found : Json::object();
  std::string mode = own.get_string("attention_mode", "gqa");
  SF_CHECK(mode == attention_mode(d), Exit::kConfig,
           "config.json: attention_mode \"{}\" with {} heads and {} key heads, which is {}", mode, d.heads, d.kv_heads,
           attention_mode(d));
  d.rank = own.get_int("markov_rank", 256);
  SF_CHECK(d.rank >= 0 && d.rank <= kMaxExtent, Exit::kConfig, "config.json: markov_rank = {}, wanted 0 to {}", d.rank,
           kMaxExtent);
  d.markov = markov_from_name(own.get_string("markov_head_type", "vanilla"));
  d.confidence = own.get_bool("enable_confidence_head", own.get_double("confidence_head_alpha", 1) > 0);
  d.confidence_with_markov = own.get_bool("confidence_head_with_markov", false);
  SF_CHECK(!d.confidence_with_markov || d.rank > 0, Exit::kConfig,
           "config.json: confidence_head_with_markov needs a markov_rank above 0");
  return d;
}

Json dspark_to_config(const Dspark& d) {
  Json config = blocks_to_config(d, kDsparkArchitecture), own = config.at("dflash_config");
  own.set("projector_type", "dspark").set("attention_mode", attention_mode(d)).set("markov_rank", d.rank);
  own.set("markov_head_type", name_of(d.markov)).set("confidence_head_alpha", d.confidence ? 1.0 : 0.0);
  own.set("enable_confidence_head", d.confidence).set("confidence_head_with_markov", d.confidence_with_markov);
  return config.set("dflash_config", own);
}

ModelSpec describe(const Dspark& draft) {
  BlockSpec builder(draft, "dspark");
  builder.context();
  builder.layers();
  builder.open("norm", {builder.last()}, {"states"});
  builder.add("norm.weight", {draft.hidden}, "ones");
  builder.open("head", {"states"}, {"logits", "confidence"});
  heads(builder, draft);
  return builder.spec();
}

ModelSpec describe_training(const Dspark& draft, bool tied) {
  BlockSpec builder(draft, "dspark");
  builder.blocks();
  builder.context();
  builder.embed("embed", "slot_ids", "hidden.0");
  builder.layers();
  builder.open("norm", {builder.last()}, {"states"});
  builder.add("norm.weight", {draft.hidden}, "ones");
  builder.open(
      "head",
      {"states", "blocks", "token_ids", "label_slots", "label_ids", "label_offsets", "final_norm", "slot_weights"},
      {"loss", "slot_sums"});
  heads(builder, draft);
  builder.head(tied, true);
  return builder.spec();
}

}  // namespace sf::arch
