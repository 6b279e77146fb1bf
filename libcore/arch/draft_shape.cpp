// SPDX-License-Identifier: Apache-2.0
#include "arch/draft_shape.h"

#include <algorithm>

#include "arch/config_check.h"
#include "base/error.h"

namespace sf::arch {
namespace {

int64_t size_or(const Json& config, std::string_view key, int64_t otherwise, int64_t most = kMaxExtent) {
  return otherwise > 0 ? positive(config, key, otherwise, most) : size_of_config(config, key, most);
}

void check_heads(const DraftShape& d) {
  SF_CHECK(d.heads % d.kv_heads == 0, Exit::kConfig,
           "config.json: num_attention_heads = {} is not a multiple of num_key_value_heads = {}", d.heads, d.kv_heads);
  SF_CHECK(d.heads * d.head_dim <= kMaxExtent, Exit::kConfig,
           "config.json: num_attention_heads = {} times head_dim = {} is out of range, wanted at most {}", d.heads,
           d.head_dim, kMaxExtent);
  SF_CHECK(d.head_dim % 2 == 0, Exit::kConfig, "config.json: head_dim = {} is odd: rotary pairs need an even number",
           d.head_dim);
}

}  // namespace

DraftShape shape_for_target(const Decoder& target, int64_t layers) {
  DraftShape d;
  d.vocab = target.vocab;
  d.hidden = target.hidden;
  const Experts& e = target.experts;
  d.intermediate = target.intermediate > 0 ? target.intermediate : e.shared_width + e.chosen * e.width;
  d.layers = layers;
  d.heads = target.heads;
  d.kv_heads = target.kv_heads;
  d.head_dim = target.head_dim;
  d.max_positions = target.max_positions;
  d.rms_eps = target.rms_eps;
  d.rope = target.rope;
  d.rope.partial = 1;  // a draft's heads turn whole, by one plane of position ids
  d.rope.sections.clear();
  d.bos = target.bos;
  d.eos = target.eos;
  return d;
}

DraftShape shape_from_config(const Json& config, const DraftShape& otherwise) {
  DraftShape d;
  d.vocab = size_or(config, "vocab_size", otherwise.vocab);
  d.hidden = size_or(config, "hidden_size", otherwise.hidden);
  d.intermediate = size_or(config, "intermediate_size", otherwise.intermediate);
  d.layers = size_or(config, "num_hidden_layers", otherwise.layers, 4096);
  d.heads = size_or(config, "num_attention_heads", otherwise.heads, 1 << 16);
  d.kv_heads = positive(config, "num_key_value_heads", d.heads, 1 << 16);
  int64_t even_share = std::max<int64_t>(d.hidden / d.heads, 1);
  d.head_dim = positive(config, "head_dim", otherwise.head_dim > 0 ? otherwise.head_dim : even_share, 1 << 16);
  check_heads(d);
  d.max_positions = size_or(config, "max_position_embeddings", otherwise.max_positions, int64_t{1} << 40);
  d.rms_eps = in_range(config.get_double("rms_norm_eps", 1e-6), "rms_norm_eps", 0, 1);
  std::string act = config.get_string("hidden_act", "silu");
  SF_CHECK(act == "silu", Exit::kConfig, "config.json: hidden_act \"{}\" is not supported, only \"silu\"", act);
  SF_CHECK(!config.get_bool("tie_word_embeddings", false), Exit::kConfig,
           "config.json: tie_word_embeddings must be false: a draft's head is never tied");
  d.rope = rope_from_config(config, d.max_positions);
  d.stored = dtype_of_config(config);
  d.bos = bos_of_config(config, otherwise.bos, d.vocab);
  d.eos = eos_of_config(config, otherwise.eos.empty() ? -1 : otherwise.eos.front(), d.vocab);
  return d;
}

void shape_to_config(const DraftShape& d, Json& config) {
  config.set("vocab_size", d.vocab).set("hidden_size", d.hidden).set("intermediate_size", d.intermediate);
  config.set("num_hidden_layers", d.layers).set("num_attention_heads", d.heads).set("num_key_value_heads", d.kv_heads);
  config.set("head_dim", d.head_dim).set("max_position_embeddings", d.max_positions);
  config.set("rms_norm_eps", d.rms_eps).set("hidden_act", "silu").set("tie_word_embeddings", false);
  rope_to_config(d.rope, config);
  tokens_to_config(d.bos, d.eos, config);
  dtype_to_config(d.stored, config);
}

std::string_view architecture_of(const Json& config) {
  const Json* list = config.is_object() ? config.find("architectures") : nullptr;
  bool one = list && list->is_array() && list->as_array().size() == 1 && list->as_array()[0].is_string();
  return one ? std::string_view(list->as_array()[0].as_string()) : std::string_view();
}

void check_architecture(const Json& config, std::string_view architecture) {
  SF_CHECK(config.is_object(), Exit::kData, "config.json: wanted an object, found {}", config.type_name());
  const Json* list = config.find("architectures");
  bool none = !list || list->is_null() || (list->is_array() && list->as_array().empty());
  std::string_view found = architecture_of(config);
  SF_CHECK(none || found == architecture, Exit::kConfig,
           "config.json: architecture \"{}\" is another kind of draft, wanted \"{}\"", found, architecture);
}

}  // namespace sf::arch
