// SPDX-License-Identifier: Apache-2.0
// What heads that end in a loss share: the states that have a label, normed. Private to this room.
#pragma once
#include "arch/decoder.h"
#include "model/segment.h"

namespace sf::model {

struct Labelled {
  at::Tensor states;  // [R, H] after the final norm
  at::Tensor wanted;  // I64 [R], on the host
  at::Tensor places;  // I64 [R]: of [B * S], ascending
};
// Of boundaries hidden.L and labels I64 [B,S]. kSoftware without a label.
Labelled labelled_states(const arch::Decoder& decoder, const Tensors& parameters, const Tensors& in);

}  // namespace sf::model
