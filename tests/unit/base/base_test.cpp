// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <set>

#include "base/dtype.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/rank_env.h"
#include "base/rng.h"
#include "base/shape.h"

namespace sf {
namespace {

Exit code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  return Exit::kOk;
}

TEST(Dtype, HalfRoundTripsEveryBitPattern) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    float value = half_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_half(value), bits) << bits;
  }
}

TEST(Dtype, Bf16RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.00390625f), 0x3f80);  // half way, to even
  EXPECT_EQ(float_to_bf16(1.01171875f), 0x3f82);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
}

TEST(Shape, RefusesOverflowAndNegativeExtents) {
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({3, 0, 5}), 0);
  EXPECT_EQ(code_of([] { numel({INT64_MAX, 2}); }), Exit::kData);
  EXPECT_EQ(code_of([] { numel({-1}); }), Exit::kData);
}

TEST(Json, KeepsOrderAndReadsBack) {
  Json value = Json::parse(R"({"b": 1, "a": [true, null, -2.5, "x\u00e9\n"], "c": {}})", "t");
  EXPECT_EQ(value.dump(), "{\"b\":1,\"a\":[true,null,-2.5,\"x\xc3\xa9\\n\"],\"c\":{}}");
  EXPECT_EQ(Json::parse(value.dump(2), "t"), value);
}

TEST(Json, NamesLineAndColumnOfAnError) {
  try {
    Json::parse("{\n  \"a\": nope\n}", "file.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
    EXPECT_EQ(std::string(error.what()).substr(0, 12), "file.json:2:") << error.what();
  }
}

TEST(Json, RefusesDuplicateKeysAndDeepNesting) {
  EXPECT_EQ(code_of([] { Json::parse(R"({"a":1,"a":2})", "t"); }), Exit::kData);
  EXPECT_EQ(code_of([] { Json::parse(std::string(5000, '['), "t"); }), Exit::kData);
}

TEST(Rng, PhiloxMatchesTheReferenceVector) {
  // Known-answer test of Philox 4x32-10: any change of a constant shows as a changed normal sequence.
  Rng rng(7, "x");
  EXPECT_EQ(rng.bits(0, 0), Rng(7, "x").bits(0, 0));
  EXPECT_NE(rng.bits(0, 0), Rng(8, "x").bits(0, 0));
  EXPECT_NE(rng.bits(0, 0), Rng(7, "y").bits(0, 0));
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    double x = rng.normal(3, i);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);  // 4 standard errors
  EXPECT_NEAR(squares / 20000, 1, 0.045);
}

TEST(Permutation, IsABijectionForEverySize) {
  for (uint64_t size : {1u, 2u, 3u, 5u, 64u, 1000u, 4097u}) {
    std::set<uint64_t> seen;
    Permutation permute(11, "order", size);
    for (uint64_t i = 0; i < size; ++i) seen.insert(permute(i));
    EXPECT_EQ(seen.size(), size);
    EXPECT_LT(*seen.rbegin(), size);
  }
}

TEST(RankEnv, RefusesHalfASetAndDisagreement) {
  EXPECT_EQ(rank_env({}).world, 1);
  EXPECT_EQ(rank_env({{"RANK", "1"}, {"WORLD_SIZE", "4"}}).rank, 1);
  EXPECT_EQ(code_of([] { rank_env({{"RANK", "1"}}); }), Exit::kUsage);
  EXPECT_EQ(code_of([] { rank_env({{"RANK", "4"}, {"WORLD_SIZE", "4"}}); }), Exit::kUsage);
  auto local = [](const char* rank, const char* world) {
    std::map<std::string, std::string> env = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
    if (*rank) env["LOCAL_RANK"] = rank;
    if (*world) env["LOCAL_WORLD_SIZE"] = world;
    return code_of([&] { rank_env(env); });
  };
  EXPECT_EQ(local("1", ""), Exit::kUsage);
  EXPECT_EQ(local("", "2"), Exit::kUsage);
  EXPECT_EQ(local("1", "3"), Exit::kUsage);
  EXPECT_EQ(local("1", "1"), Exit::kUsage);
  EXPECT_EQ(code_of([] { rank_env({{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}); }), Exit::kUsage);
  std::map<std::string, std::string> both = {
      {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(code_of([&] { rank_env(both); }), Exit::kUsage);
  EXPECT_EQ(rank_env({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).world, 1);  // batch shell
}

// As recorded from `srun -N2 -n3` on a cluster of two nodes.
TEST(RankEnv, ATaskOfSrunKnowsItsNodeAndWhereRank0Is) {
  std::map<std::string, std::string> task = {{"SLURM_PROCID", "2"},
                                             {"SLURM_NTASKS", "3"},
                                             {"SLURM_LOCALID", "0"},
                                             {"SLURM_NODEID", "1"},
                                             {"SLURM_JOB_ID", "17"},
                                             {"SLURM_STEP_ID", "2"},
                                             {"SLURM_STEP_NUM_TASKS", "3"},
                                             {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                                             {"SLURM_STEP_NODELIST", "n[1-2]"}};
  RankEnv env = rank_env(task);
  EXPECT_EQ(env.source, "slurm");
  EXPECT_EQ(env.rank, 2);
  EXPECT_EQ(env.local_world, 1);
  EXPECT_EQ(env.meet_host, "n1");
  EXPECT_EQ(env.meet_port, 20000 + 17 + 2 * 37);
  task["MASTER_ADDR"] = "10.0.0.7";
  EXPECT_EQ(rank_env(task).meet_host, "10.0.0.7");
  std::string first = env.job;
  task["SLURM_RESTART_COUNT"] = "1";
  EXPECT_NE(rank_env(task).job, first);
  task["SLURM_STEP_NUM_TASKS"] = "4";
  EXPECT_EQ(code_of([&] { rank_env(task); }), Exit::kUsage);
}

TEST(RankEnv, TorchrunsPlaceIsAPairOfVariables) {
  std::map<std::string, std::string> task = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(rank_env(task).meet_port, 29500);
  task.erase("MASTER_ADDR");
  EXPECT_EQ(code_of([&] { rank_env(task); }), Exit::kUsage);
}

TEST(RankEnv, ExpandsSlurmsLists) {
  EXPECT_EQ(first_host("n[001-003,7],gpu5"), "n001");
  EXPECT_EQ(first_host("r[1-2]c[04,5]x"), "r1c04x");
  EXPECT_EQ(first_host("gpu5,n[1-2]"), "gpu5");
  EXPECT_EQ(first_host("n[1-"), "");
  EXPECT_EQ(first_host(""), "");
  for (auto [node, count] : {std::pair{0, 2}, {2, 2}, {3, 1}, {4, 0}}) EXPECT_EQ(count_of_node("2(x3),1", node), count);
}

TEST(File, AtomicWriteLeavesNothingBesideTheFile) {
  auto dir = std::filesystem::temp_directory_path() / ("sf-base-" + std::to_string(getpid()));
  std::filesystem::create_directory(dir);
  write_atomic(dir / "a", "one");
  write_atomic(dir / "a", "two");
  EXPECT_EQ(read_file(dir / "a"), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir), std::filesystem::directory_iterator()), 1);
  {
    DirLock lock = DirLock::acquire(dir, "first");
    EXPECT_EQ(code_of([&] { DirLock::acquire(dir, "second"); }), Exit::kCantCreate);
  }
  EXPECT_EQ(code_of([&] { DirLock::acquire(dir, "third"); }), Exit::kOk);
  std::filesystem::remove_all(dir);
}

TEST(Hash, KnownAnswers) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Xxh3 pieces;
  pieces.update(std::as_bytes(std::span("ab", 2)));
  pieces.update(std::as_bytes(std::span("c", 1)));
  EXPECT_EQ(pieces.digest(), xxh3_64("abc"));
}

}  // namespace
}  // namespace sf
