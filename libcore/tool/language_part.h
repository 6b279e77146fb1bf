// SPDX-License-Identifier: Apache-2.0
// The language part of a multimodal model (models_text_scoring 2.5). Private to this room.
#pragma once
#include <string>
#include <vector>

#include "tool/tensor_set.h"

namespace sf::tool {

// Its tensors get the names that they have in a model of text alone; those of a vision tower and of heads for
// multi-token prediction, which no segment reads, leave the set: their names, in order.
std::vector<std::string> take_language_part(TensorSet& set);

}  // namespace sf::tool
