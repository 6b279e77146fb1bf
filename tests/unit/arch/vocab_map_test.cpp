// SPDX-License-Identifier: Apache-2.0
#include "arch/vocab_map.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sf::arch {
namespace {

TokenCounts counted(int64_t vocab, std::initializer_list<int64_t> ids) {
  TokenCounts counts(vocab);
  for (int64_t id : ids) counts.add(id);
  return counts;
}

using Ids = std::vector<int64_t>;

TEST(VocabMap, KeepsTheMostFrequentAscending) {
  VocabMap map = make_vocab_map(counted(10, {7, 7, 7, 2, 2, 5}), 2, TieRule::kLowestId);
  EXPECT_EQ(map.used, (Ids{2, 7}));
  EXPECT_EQ(map.d2t, (Ids{2, 6}));
  EXPECT_EQ(map.t2d, (std::vector<uint8_t>{0, 0, 1, 0, 0, 0, 0, 1, 0, 0}));
}

TEST(VocabMap, TiesGoToTheLowestIdWhateverTheOrder) {
  EXPECT_EQ(make_vocab_map(counted(10, {9, 3, 5}), 2, TieRule::kLowestId).used, (Ids{3, 5}));
  EXPECT_EQ(make_vocab_map(counted(10, {5, 9, 3}), 2, TieRule::kLowestId).used, (Ids{3, 5}));
}

TEST(VocabMap, TheReferencesTiesGoToTheFirstSeen) {
  EXPECT_EQ(make_vocab_map(counted(10, {9, 3, 5}), 2, TieRule::kFirstSeen).used, (Ids{3, 9}));
}

TEST(VocabMap, UnseenIdsFillUpFromBelow) {
  EXPECT_EQ(make_vocab_map(counted(10, {1, 8}), 4, TieRule::kLowestId).used, (Ids{0, 1, 2, 8}));
}

TEST(VocabMap, AFullVocabularyMapsToItself) {
  VocabMap map = make_vocab_map(TokenCounts(3), 3, TieRule::kLowestId);
  EXPECT_EQ(map.d2t, (Ids{0, 0, 0}));
}

TEST(VocabMap, RowsCountOnlySupervisedTokensAndRefuseForeignIds) {
  TokenCounts counts(4);
  const int32_t ids[] = {3, 1, 0}, foreign[] = {4};
  const uint8_t mask[] = {1, 1, 0};
  counts.add_row(ids, mask);
  EXPECT_EQ(counts.seen(), (Ids{1, 3}));
  EXPECT_EQ(counts.total(), 2);
  EXPECT_THROW(counts.add_row(foreign, std::span(mask, 1)), Error);
  EXPECT_THROW(counts.add(-1), Error);
}

TEST(VocabMap, CoverageCountsWhatTheDraftCanPropose) {
  TokenCounts counts = counted(10, {7, 7, 7, 2, 2, 5});
  EXPECT_EQ(covered(counts, make_vocab_map(counts, 2, TieRule::kLowestId)), 5);
}

TEST(VocabMap, SizesOutOfRangeAreRefused) {
  EXPECT_THROW(make_vocab_map(TokenCounts(3), 4, TieRule::kLowestId), Error);
  EXPECT_THROW(make_vocab_map(TokenCounts(3), 0, TieRule::kLowestId), Error);
}

TEST(VocabMap, StoredBuffersMustAgree) {
  const int64_t d2t[] = {2, 6}, wrong[] = {2, 5};
  uint8_t t2d[10] = {0, 0, 1, 0, 0, 0, 0, 1, 0, 0};
  EXPECT_EQ(vocab_map_from(d2t, t2d).used, (Ids{2, 7}));
  EXPECT_THROW(vocab_map_from(wrong, t2d), Error);
  t2d[3] = 1;
  EXPECT_THROW(vocab_map_from(d2t, t2d), Error);
}

}  // namespace
}  // namespace sf::arch
