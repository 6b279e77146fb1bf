// SPDX-License-Identifier: Apache-2.0
// Position ids of one plane or several, [planes, tokens] a sample (mrope: 3, or 4 with the text's own), and the layout
// that they never lose. Source: rl_lora 3.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sf::rl {

// Values [planes, sum of lengths], row-major; sample b owns columns [offsets[b], offsets[b + 1]) of every plane. The
// layout is said, never inferred: two samples of equal length stay two, and a plane is never taken for a sample.
struct Positions {
  int64_t planes = 1;
  std::vector<int64_t> offsets{0};
  std::vector<int64_t> values;

  int64_t samples() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t tokens() const { return offsets.back(); }
  int64_t length(int64_t sample) const {
    return offsets[static_cast<size_t>(sample) + 1] - offsets[static_cast<size_t>(sample)];
  }
  int64_t at(int64_t plane, int64_t token) const { return values[static_cast<size_t>(plane * tokens() + token)]; }
  friend bool operator==(const Positions&, const Positions&) = default;
};

// 0 .. length - 1 in every plane of each sample.
Positions counted(int64_t planes, std::span<const int64_t> lengths);
// Samples of [planes, length] each, given row-major with their planes. kData unless all have as many planes and whole
// rows; kUsage for none.
Positions joined(int64_t planes, std::span<const std::vector<int64_t>> samples);
// Samples one behind the other; kData unless all have as many planes.
Positions joined(std::span<const Positions> parts);
// The samples of these indices, in this order.
Positions selected(const Positions& from, std::span<const int64_t> samples);
// One sample's [planes, length].
std::vector<int64_t> sample_of(const Positions& from, int64_t sample);

// [planes, samples, width], padded behind each sample with 0; width: of the longest.
struct Padded {
  int64_t planes = 1, samples = 0, width = 0;
  std::vector<int64_t> values;
};
Padded padded(const Positions& from);
Positions unpadded(const Padded& from, std::span<const int64_t> lengths);

// What others wrote without a layout: values of `rows` rows of `width`, and their offsets. If every offset is a
// multiple of `planes` and the last is `rows`, the samples lie one below the other ([samples * planes, width]); else
// the rows are planes and the offsets count tokens. kData if it is neither.
struct Unlabelled {
  int64_t rows = 0, width = 0;
  std::vector<int64_t> offsets, values;
};
Positions adopted(const Unlabelled& from, int64_t planes);

}  // namespace sf::rl
