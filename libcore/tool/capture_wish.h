// SPDX-License-Identifier: Apache-2.0
// What a draft wants of its target, by the architecture that its config.json names, and what a stream promises of it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "arch/dflash.h"
#include "arch/eagle3.h"
#include "ckpt/checkpoint.h"
#include "stream/sample.h"
#include "text/chat.h"

namespace sf::tool {

// "2", "15", "27", "final_norm": the order in which features are carried.
std::vector<std::string> eagle3_layers(const arch::Eagle3& draft);
std::vector<std::string> dflash_layers(const arch::Dflash& draft);

// Layers in our numbering, and with `teacher` the last normed state, its best ids and their log-sum-exp.
struct CaptureWish {
  std::string algorithm;
  std::vector<int64_t> layers;
  bool teacher = false;
  std::vector<std::string> names;  // as a contract carries them
};
CaptureWish capture_wish(const Json& draft_config);
// The promise of a stream of what `compute` makes of the target, without the data's part (rows, digest, order).
stream::Contract contract_of(const ckpt::Checkpoint& target, const text::ChatEncoder& encoder, Dtype compute,
                             const CaptureWish& wish);

}  // namespace sf::tool
