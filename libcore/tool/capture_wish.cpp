// SPDX-License-Identifier: Apache-2.0
#include "tool/capture_wish.h"

#include "arch/decoder.h"
#include "base/error.h"

namespace sf::tool {

std::vector<std::string> eagle3_layers(const arch::Eagle3& draft) {
  std::vector<std::string> layers;
  for (int64_t layer : draft.capture_layers) layers.push_back(std::to_string(layer));
  layers.push_back("final_norm");
  return layers;
}

std::vector<std::string> dflash_layers(const arch::Dflash& draft) {
  std::vector<std::string> layers;
  for (int64_t layer : draft.capture_layers) layers.push_back(std::to_string(layer));
  return layers;
}

CaptureWish capture_wish(const Json& draft_config) {
  if (arch::is_dflash(draft_config)) {
    arch::Dflash draft = arch::dflash_from_config(draft_config);
    SF_CHECK(!draft.capture_layers.empty(), Exit::kConfig, "the draft's config.json names no target_layer_ids");
    return {"dflash", draft.capture_layers, false, dflash_layers(draft)};
  }
  arch::Eagle3 draft = arch::eagle3_from_config(draft_config);
  return {"eagle3", {draft.capture_layers.begin(), draft.capture_layers.end()}, true, eagle3_layers(draft)};
}

stream::Contract contract_of(const ckpt::Checkpoint& target, const text::ChatEncoder& encoder, Dtype compute,
                             const CaptureWish& wish) {
  arch::Decoder decoder = arch::decoder_from_config(target.config());
  stream::Contract contract;
  contract.algorithm = wish.algorithm;
  contract.target = target.identity();
  contract.tokenizer = encoder.tokenizer_digest();
  contract.chat_template = encoder.template_digest();
  contract.layers = wish.names;
  contract.compute_dtype = name_of(compute);
  contract.vocab = decoder.vocab;
  contract.hidden = decoder.hidden;
  return contract;
}

}  // namespace sf::tool
