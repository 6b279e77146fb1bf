// SPDX-License-Identifier: Apache-2.0
#include "arch/experts_config.h"

#include "arch/config_check.h"

namespace sf::arch {

std::vector<bool> sparse_layers(const Json& config, int64_t layers) {
  std::vector<bool> sparse;
  const int64_t step = positive(config, "decoder_sparse_step", 1);
  for (int64_t i = 0; i < layers; ++i) sparse.push_back((i + 1) % step == 0);
  if (const Json* dense = config.find("mlp_only_layers"); dense && !dense->is_null())
    for (const Json& layer : dense->as_array())
      if (layer.as_int() >= 0 && layer.as_int() < layers) sparse[static_cast<size_t>(layer.as_int())] = false;
  return sparse;
}

void sparse_to_config(const std::vector<bool>& layers, Json& config) {
  Json dense = Json::array();
  for (size_t i = 0; i < layers.size(); ++i)
    if (!layers[i]) dense.push(static_cast<int64_t>(i));
  config.set("decoder_sparse_step", 1).set("mlp_only_layers", std::move(dense));
}

Experts experts_from_config(const Json& config, const Decoder& d) {
  Experts e;
  e.count = size_of_config(config, config.contains("num_experts") ? "num_experts" : "num_local_experts", 1 << 16);
  e.chosen = size_of_config(config, "num_experts_per_tok", e.count);
  e.width = size_of_config(config, "moe_intermediate_size");
  if (d.family == "qwen2_moe") e.shared_width = size_of_config(config, "shared_expert_intermediate_size");
  e.normalise = config.get_bool("norm_topk_prob", false);
  e.layers = sparse_layers(config, d.layers);
  return e;
}

void experts_to_config(const Decoder& d, Json& config) {
  const Experts& e = d.experts;
  config.set("num_experts", e.count).set("num_local_experts", e.count).set("num_experts_per_tok", e.chosen);
  config.set("moe_intermediate_size", e.width).set("norm_topk_prob", e.normalise);
  sparse_to_config(e.layers, config);
  if (e.shared_width > 0) config.set("shared_expert_intermediate_size", e.shared_width).set("qkv_bias", d.qkv_bias);
}

}  // namespace sf::arch
