// SPDX-License-Identifier: Apache-2.0
// Several residual streams side by side: [.., streams * H], stream by stream (models_text_scoring 3.5). Private to this
// room.
#pragma once
#include <string_view>

#include "model/block_parts.h"

namespace sf::model {

struct MixedStreams {
  at::Tensor normed;  // [.., streams * H]: each stream's RMSNorm
  at::Tensor mixed;   // [.., H]: the mean over the streams of what a gate of low rank leaves of them
};
// `module`: what the names begin with, "attn_hyper_connection".
MixedStreams mix_streams(const arch::Decoder& decoder, const Given& given, const at::Tensor& residual,
                         std::string_view module);
// The part reads the mixture; its result is added to each stream by a weight of that token and stream.
at::Tensor through_streams(const arch::Decoder& decoder, const Given& given, const at::Tensor& residual,
                           const Part& part, std::string_view where);
// The embedding as every stream.
at::Tensor as_streams(const arch::Decoder& decoder, const at::Tensor& x);

}  // namespace sf::model
