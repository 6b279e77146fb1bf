// SPDX-License-Identifier: Apache-2.0
// What a draft wants of its target, by the architecture that its config.json names, and what a stream promises of it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "stream/sample.h"
#include "text/chat.h"

namespace sf::tool {

// Layers in our numbering, the last normed state, and (teacher) its best ids and their log-sum-exp.
struct CaptureWish {
  std::string algorithm;  // the form of the samples (arch::DraftFamily::features)
  std::vector<int64_t> layers;
  bool final_norm = false, teacher = false;
  std::vector<std::string> names;  // as a contract carries them, in the order of features: "2", "15", "final_norm"
};
CaptureWish capture_wish(const Json& draft_config);
// The promise of a stream of what `compute` makes of the target, without the data's part (rows, digest, order).
stream::Contract contract_of(const ckpt::Checkpoint& target, const text::ChatEncoder& encoder, Dtype compute,
                             const CaptureWish& wish);

}  // namespace sf::tool
