// SPDX-License-Identifier: Apache-2.0
#include "arch/domino.h"

#include "arch/block_spec.h"
#include "arch/config_check.h"
#include "base/error.h"

namespace sf::arch {
namespace {

// In the open segment.
void correction(BlockSpec& builder, const Domino& d) {
  builder.matrix("prefix_gru.weight_ih_l0", 3 * d.state, d.hidden);
  builder.matrix("prefix_gru.weight_hh_l0", 3 * d.state, d.state);
  builder.matrix("embed_proj.0.weight", d.projection, d.hidden + d.state);
  builder.matrix("embed_proj.2.weight", d.vocab, d.projection);
}

}  // namespace

Domino domino_from_config(const Json& config) {
  check_architecture(config, kDominoArchitecture);
  Domino d;
  static_cast<Dflash&>(d) = blocks_from_config(config);
  const Json* found = config.find("dflash_config");
  Json own = found && !found->is_null() ? *found : Json::object();
  d.projection = positive(own, "emb_dim", 256);
  d.state = positive(own, "gru_hidden_dim", 1024);
  d.prefix = own.get_int("pure_draft_prefix_len", 1);
  d.shift_label = own.get_bool("shift_label", true);
  SF_CHECK(d.prefix >= 0 && d.first_corrected() < d.block, Exit::kConfig,
           "config.json: pure_draft_prefix_len = {} leaves no slot of a block of {} to correct", d.prefix, d.block);
  return d;
}

Json domino_to_config(const Domino& d) {
  Json config = blocks_to_config(d, kDominoArchitecture), own = config.at("dflash_config");
  own.set("projector_type", "domino").set("emb_dim", d.projection).set("gru_hidden_dim", d.state);
  own.set("pure_draft_prefix_len", d.prefix).set("shift_label", d.shift_label);
  return config.set("dflash_config", own);
}

ModelSpec describe(const Domino& draft) {
  BlockSpec builder(draft, "domino");
  builder.context();
  builder.layers();
  builder.open("norm", {builder.last()}, {"states"});
  builder.add("norm.weight", {draft.hidden}, "ones");
  builder.open("head", {"states"}, {"logits"});
  correction(builder, draft);
  return builder.spec();
}

ModelSpec describe_training(const Domino& draft, bool tied) {
  BlockSpec builder(draft, "domino");
  builder.blocks();
  builder.context();
  builder.embed("embed", "slot_ids", "hidden.0");
  builder.embed("embed_tokens", "token_ids", "token_rows");
  builder.layers();
  builder.open("norm", {builder.last()}, {"states"});
  builder.add("norm.weight", {draft.hidden}, "ones");
  builder.open("head",
               {"states", "token_rows", "label_slots", "label_ids", "label_offsets", "slot_weights", "base_share"},
               {"loss", "slot_sums"});
  correction(builder, draft);
  builder.head(tied, true);
  return builder.spec();
}

}  // namespace sf::arch
