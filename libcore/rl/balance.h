// SPDX-License-Identifier: Apache-2.0
// Sequences of many lengths into parts of like work: Karmarkar and Karp's differencing, exactly as the reference does
// it, and micro-batches within a budget of tokens. Source: rl_lora 4.6.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sf::rl {

using Part = std::vector<int64_t>;  // indices, ascending

// 24576 length + length^2: the reference's measure of a sequence.
int64_t workload(int64_t length);

// `values` into k parts of like sums, in descending order of the differencing. Equal sizes: every part holds as many
// (kConfig unless k divides their number). kConfig for k outside [1, values]; kSoftware if a part would be empty.
std::vector<Part> balanced_parts(std::span<const int64_t> values, int64_t k, bool equal_sizes);

struct Budget {
  int64_t tokens = 0;        // of one micro-batch
  bool padded = false;       // a micro-batch costs its sequences times its longest; else the sum of lengths
  int64_t at_least = 0;      // micro-batches
  bool large_inside = true;  // parts of little work first and last
};

// Micro-batches of all sequences; each holds one at least and, unlike the reference's older versions, never more than
// the budget: their number grows until every part fits. `lengths` are those of the whole mini-batch, on every rank:
// ranks then agree on the micro-batches without a word. kConfig naming the longest sequence if it alone does not fit.
std::vector<Part> micro_batches(std::span<const int64_t> lengths, const Budget& budget);
// Tokens that a micro-batch costs.
int64_t cost_of(std::span<const int64_t> lengths, const Part& part, bool padded);

// Values by part, one behind the other, back into the order of the sequences.
template <typename T>
std::vector<T> restored(const std::vector<Part>& parts, std::span<const T> by_part) {
  std::vector<T> result(by_part.size());
  size_t at = 0;
  for (const Part& part : parts)
    for (int64_t index : part) result[static_cast<size_t>(index)] = by_part[at++];
  return result;
}

}  // namespace sf::rl
