// SPDX-License-Identifier: Apache-2.0
// Features that no target has computed: random numbers in the shapes of a production model, to measure training with.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/command.h"
#include "stream/sample.h"

namespace sf::tool {

// What a shape's contract says; rows, length, dtype and order are still to be set.
//   "qwen3-8b", "qwen3-8b/8": a known model, hidden size and vocabulary divided by a scale; belongs to no target
//   DIR: of a draft (the features then train that draft) or of a target, as its config.json says
// kUsage naming the known models if it is none of these.
stream::Contract synthetic_contract(const std::string& shape);

// Target ids that the draft of that shape can propose, ascending; empty if it can propose any (or is no directory).
std::vector<int64_t> proposed_ids(const std::string& shape);

// Sample `row` under a contract: max_length tokens, the first quarter a prompt; a function of its arguments alone. A
// teacher's first choice is one of `proposed` (empty: any id): elsewhere a position would not count for that draft.
stream::Sample synthetic_sample(const stream::Contract& contract, std::span<const int64_t> proposed, uint64_t row);

// sf-capture features --synthetic SHAPE --n N -o DIR.
int synthetic_features(app::Invocation& invocation);

}  // namespace sf::tool
