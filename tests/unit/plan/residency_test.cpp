// SPDX-License-Identifier: Apache-2.0
#include "plan/residency.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sf::plan {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Qwen3-8B: 151936 x 4096 bf16 is 1187 MiB.
TableUse qwen3_table() {
  return {.rows = 151936, .width = 4096, .type = Dtype::kBF16, .lookups = 8192, .rounds = 2};
}

TEST(Residency, TwoTablesOfQwen3OnFourRanksAreTheReferencesArithmetic) {
  TableCost whole = cost_of(qwen3_table(), Residency::kReplicate, 0, 4);
  TableCost shard = cost_of(qwen3_table(), Residency::kShard, 0, 4);
  EXPECT_EQ(whole.at_rest, 1187 * kMiB);
  EXPECT_EQ(2 * (whole.at_rest - shard.at_rest), 1780 * kMiB + kMiB / 2);  // saved at rest
  EXPECT_EQ(2 * (shard.peak - whole.peak), 593 * kMiB + kMiB / 2);         // lost at peak
  EXPECT_EQ(shard.wire, whole.at_rest - shard.at_rest);
}

TEST(Residency, RowsAndStreamLowerBothRestAndPeak) {
  TableCost whole = cost_of(qwen3_table(), Residency::kReplicate, 0, 4);
  for (Residency residency : {Residency::kRows, Residency::kStream}) {
    TableCost cost = cost_of(qwen3_table(), residency, 0, 4);
    EXPECT_LT(cost.at_rest, whole.at_rest) << name_of(residency);
    EXPECT_LT(cost.peak, whole.peak) << name_of(residency);
    EXPECT_GT(cost.wire, 0U) << name_of(residency);
  }
}

TEST(Residency, AHostTableIsCountedOnceAHost) {
  TableCost cost = cost_of(qwen3_table(), Residency::kHost, 3, 4);
  EXPECT_EQ(cost.at_rest, 0U);
  EXPECT_EQ(cost.host, 1187 * kMiB);
}

TEST(Residency, OneRankHoldsTheTableAndSendsNothing) {
  for (Residency residency : kResidencies) {
    TableCost cost = cost_of(qwen3_table(), residency, 0, 1);
    EXPECT_EQ(cost.wire, 0U) << name_of(residency);
    EXPECT_EQ(cost.at_rest + cost.host, 1187 * kMiB) << name_of(residency);
  }
}

TEST(Residency, TheShardsOfAllRanksAreTheTable) {
  TableUse uneven{.rows = 10, .width = 3, .type = Dtype::kF32, .lookups = 1, .rounds = 1};
  for (int world : {1, 2, 3, 4, 8, 16}) {
    uint64_t sum = 0;
    for (int rank = 0; rank < world; ++rank) sum += cost_of(uneven, Residency::kShard, rank, world).at_rest;
    EXPECT_EQ(sum, 10U * 3 * 4) << world;
  }
}

TEST(Residency, WhatDoesNotFitATablesUseIsSaid) {
  arch::Table embedding{"e", true, false}, head{"h", false, true}, tied{"t", true, true};
  EXPECT_EQ(misfit(embedding, Residency::kRows), "");
  EXPECT_NE(misfit(embedding, Residency::kStream), "");
  EXPECT_NE(misfit(head, Residency::kRows), "");
  EXPECT_EQ(misfit(head, Residency::kStream), "");
  EXPECT_NE(misfit(tied, Residency::kRows), "");
  EXPECT_EQ(misfit(tied, Residency::kRowsStream), "");
  EXPECT_NE(misfit(head, Residency::kRowsStream), "");
  for (Residency residency : {Residency::kReplicate, Residency::kShard, Residency::kHost})
    EXPECT_EQ(misfit(tied, residency), "") << name_of(residency);
}

TEST(Residency, WordsNameOneForAllOrOneATable) {
  arch::ModelSpec spec;
  spec.tables = {{"embedding.weight", true, false}, {"head.weight", false, true}, {"inside.weight", true, false, true}};
  using Map = std::map<std::string, Residency>;
  EXPECT_EQ(residencies_of(spec, ""), (Map{{"embedding.weight", Residency::kReplicate},
                                           {"head.weight", Residency::kReplicate},
                                           {"inside.weight", Residency::kReplicate}}));
  EXPECT_EQ(residencies_of(spec, "embedding=rows,head.weight=stream"), (Map{{"embedding.weight", Residency::kRows},
                                                                            {"head.weight", Residency::kStream},
                                                                            {"inside.weight", Residency::kReplicate}}));
  EXPECT_EQ(residencies_of(spec, "host").size(), 3U);
  for (const char* wrong : {"heads=stream", "head=streams", "somewhere"})
    EXPECT_THROW(residencies_of(spec, wrong), Error);
}

TEST(Residency, ATiedTableTakesWordsUnderBothItsNames) {
  arch::ModelSpec spec;
  spec.tables = {{"embedding.weight", true, true}};
  spec.aliases = {{"head.weight", "embedding.weight"}};
  EXPECT_EQ(residencies_of(spec, "head=host").at("embedding.weight"), Residency::kHost);
  for (const char* words : {"embedding=rows,head=stream", "head=stream,embedding=rows"})
    EXPECT_EQ(residencies_of(spec, words).at("embedding.weight"), Residency::kRowsStream) << words;
}

std::string refusal(const arch::ModelSpec& spec, std::string_view words) {
  try {
    residencies_of(spec, words);
  } catch (const Error& error) {
    return error.code() == Exit::kConfig ? error.what() : "another status";
  }
  return "none";
}

TEST(Residency, TwoWordsOfOneTableAreRefusedNamingBoth) {
  arch::ModelSpec spec;
  spec.tables = {{"embedding.weight", true, false}, {"head.weight", false, true}};
  EXPECT_EQ(
      refusal(spec, "head=shard,head.weight=stream"),
      "shard.frozen_tables: \"head=shard\" and \"head.weight=stream\" both say where head.weight lives; give one");
  EXPECT_NE(refusal(spec, "head=stream,head=stream"), "none");
  for (const char* words : {"head=shard,host", "host,shard"})
    EXPECT_NE(refusal(spec, words).find("is for all tables"), std::string::npos) << words;
  arch::ModelSpec tied;
  tied.tables = {{"embedding.weight", true, true}};
  tied.aliases = {{"head.weight", "embedding.weight"}};
  EXPECT_NE(refusal(tied, "embedding=host,head=shard"), "none");
  EXPECT_NE(refusal(tied, "head=rows,head=stream"), "none");
  EXPECT_EQ(refusal(tied, "embedding=host,head=host"), "none");
}

TEST(Residency, AWordForAllStandsBeforeItsExceptions) {
  arch::ModelSpec spec;
  spec.tables = {{"embedding.weight", true, false}, {"head.weight", false, true}};
  EXPECT_EQ(
      residencies_of(spec, "shard,head=stream"),
      (std::map<std::string, Residency>{{"embedding.weight", Residency::kShard}, {"head.weight", Residency::kStream}}));
  EXPECT_TRUE(words_of_tables(spec, "").empty());
  EXPECT_EQ(words_of_tables(spec, "head=stream").size(), 1U);
}

TEST(Residency, NamesReadBack) {
  for (Residency residency : kResidencies) EXPECT_EQ(residency_from_name(name_of(residency)), residency);
  EXPECT_EQ(residency_from_name("gather"), std::nullopt);
}

}  // namespace
}  // namespace sf::plan
