// SPDX-License-Identifier: Apache-2.0
// The further names that a manifest records, against the files and the model that config.json describes. Private to
// this room.
#pragma once
#include "ckpt/checkpoint.h"

namespace sf::ckpt {

// kData naming both names of one that is stored itself, that stands for nothing stored, or, where config.json describes
// the model, that its parameters do not let be one tensor: another storage or another shape.
void check_aliases(const Checkpoint& files);

}  // namespace sf::ckpt
