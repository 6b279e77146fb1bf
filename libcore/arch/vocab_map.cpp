// SPDX-License-Identifier: Apache-2.0
#include "arch/vocab_map.h"

#include <algorithm>

#include "base/error.h"

namespace sf::arch {

TokenCounts::TokenCounts(int64_t vocab) : counts_(static_cast<size_t>(vocab), 0) {}

void TokenCounts::add(int64_t id) {
  SF_CHECK(id >= 0 && id < vocab(), Exit::kData, "token id {} is outside the vocabulary of {}", id, vocab());
  if (counts_[static_cast<size_t>(id)]++ == 0) seen_.push_back(id);
  ++total_;
}

void TokenCounts::add_row(std::span<const int32_t> ids, std::span<const uint8_t> mask) {
  SF_CHECK(ids.size() == mask.size(), Exit::kData, "{} token ids with a loss mask of {}", ids.size(), mask.size());
  std::vector<int32_t> supervised;
  for (size_t i = 0; i < ids.size(); ++i)
    if (mask[i]) supervised.push_back(ids[i]);
  std::sort(supervised.begin(), supervised.end());
  for (int32_t id : supervised) add(id);
}

VocabMap make_vocab_map(const TokenCounts& counts, int64_t draft_vocab, TieRule rule) {
  SF_CHECK(draft_vocab >= 1 && draft_vocab <= counts.vocab(), Exit::kConfig,
           "draft vocabulary of {} is out of range, wanted 1 to the target's {}", draft_vocab, counts.vocab());
  std::vector<int64_t> order = counts.seen();
  if (rule == TieRule::kLowestId) std::sort(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return counts.count(a) > counts.count(b); });
  for (int64_t id = 0; static_cast<int64_t>(order.size()) < draft_vocab; ++id)
    if (counts.count(id) == 0) order.push_back(id);
  order.resize(static_cast<size_t>(draft_vocab));
  VocabMap map;
  map.used = std::move(order);
  std::sort(map.used.begin(), map.used.end());
  map.t2d.assign(static_cast<size_t>(counts.vocab()), 0);
  for (size_t i = 0; i < map.used.size(); ++i) {
    map.d2t.push_back(map.used[i] - static_cast<int64_t>(i));
    map.t2d[static_cast<size_t>(map.used[i])] = 1;
  }
  return map;
}

VocabMap vocab_map_from(std::span<const int64_t> d2t, std::span<const uint8_t> t2d) {
  VocabMap map;
  map.d2t.assign(d2t.begin(), d2t.end());
  map.t2d.assign(t2d.begin(), t2d.end());
  for (size_t id = 0; id < t2d.size(); ++id)
    if (t2d[id]) map.used.push_back(static_cast<int64_t>(id));
  SF_CHECK(map.used.size() == d2t.size(), Exit::kData, "t2d marks {} token ids, d2t maps {}", map.used.size(),
           d2t.size());
  for (size_t i = 0; i < d2t.size(); ++i)
    SF_CHECK(map.used[i] - static_cast<int64_t>(i) == d2t[i], Exit::kData,
             "draft token {}: d2t says offset {}, t2d says {}", i, d2t[i], map.used[i] - static_cast<int64_t>(i));
  return map;
}

int64_t covered(const TokenCounts& counts, const VocabMap& map) {
  int64_t sum = 0;
  for (int64_t id : map.used) sum += counts.count(id);
  return sum;
}

}  // namespace sf::arch
