// SPDX-License-Identifier: Apache-2.0
// The P-EAGLE draft as data (eagle_dflash 4.2): EAGLE3's input, several layers, all draft tokens in one pass.
#pragma once
#include <array>

#include "arch/draft_shape.h"
#include "arch/model_spec.h"

namespace sf::arch {

struct Peagle : DraftShape {
  int64_t draft_vocab = 0, target_hidden = 0;
  int64_t mask_token = -1;                  // id of what is not known yet; -1: the config does not say
  bool norm_before_residual = false;        // the first layer's residual is the normed state
  std::array<int64_t, 3> capture_layers{};  // as Eagle3's

  friend bool operator==(const Peagle&, const Peagle&) = default;
};

inline constexpr std::string_view kPeagleArchitecture = "PEagleDraftModel";

Peagle peagle_from_config(const Json& config);  // kConfig naming the setting
Json peagle_to_config(const Peagle& draft);
// Geometry copied, EAGLE3's capture layers.
Peagle peagle_for_target(const Decoder& target, int64_t draft_vocab, int64_t layers);
// embed_tokens (starts as the target's), fc, mask_hidden, layers.*, norm, lm_head, all trainable; buffers t2d, d2t.
ModelSpec describe(const Peagle& draft);
// For training: the segments of model::peagle_segments, and the rows of the teacher's head that belong to the draft
// vocabulary (kTargetHead).
ModelSpec describe_training(const Peagle& draft);

}  // namespace sf::arch
