// SPDX-License-Identifier: Apache-2.0
#include "arch/config_keys.h"

#include <algorithm>

namespace sf::arch {
namespace {

constexpr std::string_view kKeys[] = {
    "architectures",
    "model_type",
    "text_config",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "hidden_act",
    "attention_bias",
    "mlp_bias",
    "qkv_bias",
    "layer_types",
    "max_window_layers",
    "sliding_window",
    "use_sliding_window",
    "pretraining_tp",
    "quantization_config",
    "tie_word_embeddings",
    "dtype",
    "torch_dtype",
    "bos_token_id",
    "eos_token_id",
    // rotary positions
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rope_type",
    "type",
    "factor",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "high_freq_factor",
    "low_freq_factor",
    "mrope_interleaved",
    "mrope_section",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "truncate",
    // experts
    "decoder_sparse_step",
    "mlp_only_layers",
    "moe_intermediate_size",
    "norm_topk_prob",
    "num_experts",
    "num_experts_per_tok",
    "num_local_experts",
    "shared_expert_intermediate_size",
    // hybrid layers
    "full_attention_interval",
    "hc_count",
    "hc_lowrank",
    "heads_per_ngram",
    "indexer_budget",
    "indexer_compress_ratio",
    "indexer_head_dim",
    "indexer_kv_heads",
    "indexer_n_heads",
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "make_ngram_vocab_size_divisible_by",
    "ngram_size",
    "ngram_vocab_size_base",
    "output_gate_type",
    "ple_conv_kernel_size",
    "ple_embed_dim",
    "ple_layer_ids",
    "seed",
    "split_ngram_parts",
    // drafts
    "draft_vocab_size",
    "target_hidden_size",
    "eagle_config",
    "eagle_aux_hidden_state_layer_ids",
    "use_aux_hidden_state",
    "fc_norm",
    "norm_output",
    "norm_before_residual",
    "mask_token_id",
    "auto_map",
    "AutoModel",
    "dflash_config",
    "block_size",
    "num_target_layers",
    "target_layer_ids",
    "projector_type",
    "is_causal",
    "conv_group_size",
    "conv_kernel_size",
    "selector_rank",
    "selector_top_k",
    "final_logit_softcapping",
    "input_embedding_scale",
    "output_multiplier",
    "emb_dim",
    "gru_hidden_dim",
    "pure_draft_prefix_len",
    "shift_label",
    "attention_mode",
    "confidence_head_alpha",
    "confidence_head_with_markov",
    "enable_confidence_head",
    "markov_head_type",
    "markov_rank",
};

}  // namespace

std::span<const std::string_view> config_keys() {
  return kKeys;
}

std::optional<std::string> unread_key(const Json& config) {
  for (const auto& [key, value] : config.as_object()) {
    if (std::ranges::find(kKeys, key) == std::end(kKeys)) return key;
    if (!value.is_object()) continue;
    if (std::optional<std::string> inner = unread_key(value)) return inner;
  }
  return std::nullopt;
}

}  // namespace sf::arch
