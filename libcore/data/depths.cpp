// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/fault.h"
#include "base/rng.h"
#include "data/collate.h"

namespace sf::data {
namespace {

// `count` of these, ascending.
std::vector<int64_t> some_of(const std::vector<int64_t>& from, int64_t count, uint64_t seed, const std::string& what) {
  if (std::ssize(from) <= count) return from;
  Permutation order(seed, what, from.size());
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < count; ++i) drawn.push_back(from[order(static_cast<uint64_t>(i))]);
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

}  // namespace

DepthRows draw_depths(std::span<const uint8_t> mask, const DepthRule& rule, uint64_t position) {
  size_t shift = rule.reference_quirks ? 0 : 1;
  auto supervised = [&](int64_t index) {
    size_t at = static_cast<size_t>(index) + shift;
    return at < mask.size() && mask[at] != 0;
  };
  auto length = static_cast<int64_t>(mask.size());
  int64_t all = 0;
  for (int64_t i = 0; i < length; ++i) all += supervised(i);
  std::vector<int64_t> kept(static_cast<size_t>(length));
  std::iota(kept.begin(), kept.end(), int64_t{0});
  if (fault("data.one_draw")) position = 0;
  DepthRows rows;
  for (int64_t depth = 1; depth < rule.depths; ++depth) {
    std::vector<int64_t> eligible;
    for (int64_t anchor : kept)
      if (supervised(anchor + depth)) eligible.push_back(anchor);
    double share = std::max(std::pow(rule.ratio, static_cast<double>(depth)), rule.least);
    auto most = static_cast<int64_t>(static_cast<double>(all - depth) * share);
    std::string what = "depth " + std::to_string(depth) + " of position " + std::to_string(position);
    kept = some_of(eligible, std::max<int64_t>(most, 0), rule.seed, what);
    if (kept.empty()) break;
    rows.anchors.insert(rows.anchors.end(), kept.begin(), kept.end());
    rows.depths.insert(rows.depths.end(), kept.size(), depth);
  }
  return rows;
}

}  // namespace sf::data
