// SPDX-License-Identifier: Apache-2.0
#include "tool/capture_wish.h"

#include "arch/decoder.h"
#include "arch/drafts.h"
#include "base/error.h"

namespace sf::tool {

CaptureWish capture_wish(const Json& draft_config) {
  const arch::DraftFamily& family = arch::draft_family(draft_config);
  arch::DraftInput input = family.input(draft_config);
  CaptureWish wish{std::string(family.features), input.layers, family.final_norm(), family.teacher(), {}};
  for (int64_t layer : input.layers) wish.names.push_back(std::to_string(layer));
  if (wish.final_norm) wish.names.emplace_back("final_norm");
  return wish;
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
