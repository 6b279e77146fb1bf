// SPDX-License-Identifier: Apache-2.0
#include "rl/positions.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/fault.h"

namespace sf::rl {
namespace {

// Appends columns [begin, end) of every plane of `from` (of `width` columns) to as many of `to`.
void copy_columns(std::span<const int64_t> from, int64_t width, int64_t begin, int64_t end, int64_t to_begin,
                  Positions& to) {
  for (int64_t plane = 0; plane < to.planes; ++plane)
    std::copy(from.begin() + plane * width + begin, from.begin() + plane * width + end,
              to.values.begin() + plane * to.tokens() + to_begin);
}

Positions of_lengths(int64_t planes, std::span<const int64_t> lengths) {
  SF_CHECK(planes >= 1, Exit::kData, "position ids of {} planes, wanted 1 or more", planes);
  Positions result{.planes = planes};
  for (int64_t length : lengths) result.offsets.push_back(result.tokens() + length);
  result.values.assign(static_cast<size_t>(planes * result.tokens()), 0);
  return result;
}

}  // namespace

Positions counted(int64_t planes, std::span<const int64_t> lengths) {
  Positions result = of_lengths(planes, lengths);
  for (int64_t plane = 0; plane < planes; ++plane)
    for (int64_t b = 0; b < result.samples(); ++b) {
      auto first = result.values.begin() + plane * result.tokens() + result.offsets[static_cast<size_t>(b)];
      std::iota(first, first + result.length(b), 0);
    }
  return result;
}

Positions joined(int64_t planes, std::span<const std::vector<int64_t>> samples) {
  SF_CHECK(!samples.empty(), Exit::kUsage, "position ids of no sample");
  std::vector<int64_t> lengths;
  for (const auto& sample : samples) {
    SF_CHECK(planes >= 1 && std::ssize(sample) % planes == 0, Exit::kData,
             "a sample of {} position ids has no {} planes", sample.size(), planes);
    lengths.push_back(std::ssize(sample) / planes);
  }
  Positions result = of_lengths(planes, lengths);
  for (size_t b = 0; b < samples.size(); ++b)
    copy_columns(samples[b], lengths[b], 0, lengths[b], result.offsets[b], result);
  return result;
}

Positions joined(std::span<const Positions> parts) {
  SF_CHECK(!parts.empty(), Exit::kUsage, "position ids of no part");
  std::vector<int64_t> lengths;
  for (const Positions& part : parts) {
    SF_CHECK(part.planes == parts.front().planes, Exit::kData, "position ids of {} planes beside some of {}",
             part.planes, parts.front().planes);
    for (int64_t b = 0; b < part.samples(); ++b) lengths.push_back(part.length(b));
  }
  Positions result = of_lengths(parts.front().planes, lengths);
  int64_t at = 0;
  for (const Positions& part : parts) {
    copy_columns(part.values, part.tokens(), 0, part.tokens(), at, result);
    at += part.tokens();
  }
  return result;
}

Positions selected(const Positions& from, std::span<const int64_t> samples) {
  std::vector<int64_t> lengths;
  for (int64_t b : samples) {
    SF_ASSERT(b >= 0 && b < from.samples());
    lengths.push_back(from.length(b));
  }
  Positions result = of_lengths(from.planes, lengths);
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto b = static_cast<size_t>(samples[i]);
    copy_columns(from.values, from.tokens(), from.offsets[b], from.offsets[b + 1], result.offsets[i], result);
  }
  return result;
}

std::vector<int64_t> sample_of(const Positions& from, int64_t sample) {
  return selected(from, std::span(&sample, 1)).values;
}

Padded padded(const Positions& from) {
  Padded result{.planes = from.planes, .samples = from.samples()};
  for (int64_t b = 0; b < from.samples(); ++b) result.width = std::max(result.width, from.length(b));
  result.values.assign(static_cast<size_t>(result.planes * result.samples * result.width), 0);
  for (int64_t plane = 0; plane < from.planes; ++plane)
    for (int64_t b = 0; b < from.samples(); ++b) {
      auto row = from.values.begin() + plane * from.tokens() + from.offsets[static_cast<size_t>(b)];
      std::copy(row, row + from.length(b), result.values.begin() + (plane * result.samples + b) * result.width);
    }
  return result;
}

Positions unpadded(const Padded& from, std::span<const int64_t> lengths) {
  SF_ASSERT(std::ssize(lengths) == from.samples);
  Positions result = of_lengths(from.planes, lengths);
  for (int64_t plane = 0; plane < from.planes; ++plane)
    for (int64_t b = 0; b < from.samples; ++b) {
      SF_ASSERT(lengths[static_cast<size_t>(b)] <= from.width);
      auto row = from.values.begin() + (plane * from.samples + b) * from.width;
      std::copy(row, row + lengths[static_cast<size_t>(b)],
                result.values.begin() + plane * result.tokens() + result.offsets[static_cast<size_t>(b)]);
    }
  return result;
}

Positions adopted(const Unlabelled& from, int64_t planes) {
  SF_CHECK(planes >= 1 && from.rows >= 1 && from.width >= 0 && std::ssize(from.values) == from.rows * from.width,
           Exit::kData, "{} position ids are no {} rows of {}", from.values.size(), from.rows, from.width);
  SF_CHECK(!from.offsets.empty() && from.offsets.front() == 0 && std::ranges::is_sorted(from.offsets), Exit::kData,
           "offsets of position ids must rise from 0");
  const int64_t samples = std::ssize(from.offsets) - 1;
  bool below = samples >= 1 && from.rows == samples * planes;
  for (int64_t b = 0; b <= samples; ++b) below &= from.offsets[static_cast<size_t>(b)] == b * planes;
  if (fault("rl.trust_the_last_offset")) below = from.offsets.back() == from.rows;
  if (!below) {
    SF_CHECK(
        from.rows == planes && from.offsets.back() == from.width, Exit::kData,
        "position ids [{}, {}] with offsets that end at {} are neither {} planes of tokens nor samples of {} planes",
        from.rows, from.width, from.offsets.back(), planes, planes);
    return {planes, from.offsets, from.values};
  }
  std::vector<std::vector<int64_t>> each;
  for (int64_t b = 0; b < samples; ++b) {
    auto first = from.values.begin() + b * planes * from.width;
    each.emplace_back(first, first + planes * from.width);
  }
  return joined(planes, each);
}

}  // namespace sf::rl
