// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tool/memory_limit.h"
#include "tool/plan_request.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

config::Settings settings_of(const std::string& toml) {
  config::Settings settings({"plan", "engine", "shard", "training", "capture", "draft", "stream"});
  settings.load_text(toml, "test.toml");
  return settings;
}

const std::string kSmall = R"([plan.target]
model_type = "qwen3"
vocab_size = 512
hidden_size = 64
intermediate_size = 128
num_hidden_layers = 8
max_position_embeddings = 2048
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 16
)";

PlanReport report_of(const std::string& toml, int world) {
  config::Settings settings = settings_of(toml);
  PlanRequest request = plan_request(settings, world);
  set_limits(request, bytes_of_setting(settings, "plan.memory"), kUsualBandwidth);
  apply_modes(settings, request);
  return make_report(std::move(request));
}

double processor_s() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(Plan, TheTargetsTableIsReadAsItsConfig) {
  PlanReport report = report_of(kSmall, 2);
  EXPECT_EQ(report.request.algorithm, "eagle3");
  EXPECT_EQ(report.tables.size(), 2U);
  EXPECT_EQ(report.schedule.parameters[0].shape, (Shape{512, 64}));
}

TEST(Plan, AWordOfAShapeThatNothingReadsIsRefusedWithTheNearest) {
  for (const auto& [slip, near] : {std::pair{"num_key_value_head = 2", "num_key_value_heads"},
                                   {"tie_word_embedings = true", "tie_word_embeddings"},
                                   {"rope_scaling = { rope_type = \"linear\", factr = 2 }", "factor"}}) {
    try {
      report_of(kSmall + slip + "\n", 2);
      FAIL() << slip << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kConfig);
      EXPECT_NE(std::string(error.what()).find(fmt::format("(did you mean {}?)", near)), std::string::npos)
          << error.what();
    }
  }
}

TEST(Plan, OfAHundredBillionParametersTakesLessThanATenthOfASecond) {
  std::string toml =
      "[plan]\nalgorithm = \"sft\"\n[plan.target]\nmodel_type = \"llama\"\nvocab_size = 128256\n"
      "hidden_size = 10240\nintermediate_size = 32768\nnum_hidden_layers = 80\nmax_position_embeddings = "
      "8192\nnum_attention_heads = 80\n"
      "num_key_value_heads = 8\n";
  double best = 1;
  for (int i = 0; i < 5; ++i) {
    double start = processor_s();
    PlanReport report = report_of(toml, 64);
    EXPECT_GT(report.request.spec.parameter_count(), int64_t{100'000'000'000});
    EXPECT_FALSE(plan_text(report).empty());
    EXPECT_FALSE(plan_json(report).dump().empty());
    best = std::min(best, processor_s() - start);
  }
  EXPECT_LT(best, 0.1 * 2) << "seconds of processor time; twice the goal: builds with sanitizers are slower";
}

TEST(Plan, WhatDoesNotFitSaysByHowManyBytes) {
  PlanReport report = report_of(kSmall + "[plan]\nmemory = \"1000000\"\n", 2);
  uint64_t wanted = report.totals[static_cast<size_t>(report.fullest_rank())].resident;
  ASSERT_GT(wanted, 1000000U);
  EXPECT_EQ(report.missing(), wanted - 1000000);
}

TEST(Plan, AnOptionThatIsGivenReachesThePlanAndIsEchoed) {
  config::Settings settings =
      settings_of("[plan]\nalgorithm = \"dflash\"\n" + kSmall + "[training]\nshard_frozen_tables = true\n");
  PlanRequest request = plan_request(settings, 2);
  EXPECT_FALSE(request.options.tables.empty());
  for (const auto& [name, residency] : request.options.tables) EXPECT_EQ(residency, plan::Residency::kShard) << name;
  std::vector<std::string> left = settings.unapplied();
  EXPECT_EQ(std::find(left.begin(), left.end(), "training.shard_frozen_tables"), left.end());
}

TEST(Plan, TheReferencesOptionReachesNoTableOfEagle3AndSaysSo) {
  config::Settings settings = settings_of(kSmall + "[training]\nshard_frozen_tables = true\n");
  PlanRequest request = plan_request(settings, 2);
  for (const auto& [name, residency] : request.options.tables)
    EXPECT_EQ(residency, plan::Residency::kReplicate) << name;
  std::vector<config::Echo> said = settings.echo(true);
  EXPECT_TRUE(std::any_of(said.begin(), said.end(), [](const config::Echo& each) {
    return each.idle && each.line.starts_with("applied training.shard_frozen_tables=true to 0 tables");
  }));
}

TEST(Plan, ARunWhoseModesCannotMeetTheLimitIsRefusedBeforeItBegins) {
  config::Settings settings = settings_of(kSmall + "[engine]\nmode = \"auto\"\nmemory = \"1000\"\n");
  PlanRequest request = plan_request(settings, 2);
  set_limits(request, 0, kUsualBandwidth);
  try {
    apply_modes(settings, request, [](uint64_t limit) { return limit; });
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kConfig);
    EXPECT_NE(std::string(error.what()).find("may use 1000 (engine.memory)"), std::string::npos) << error.what();
  }
}

TEST(Plan, AnEmbeddingOfEagle3MayLieInRowsOrOnTheHostAndItsTeachersHeadMayNot) {
  for (const char* residency : {"rows", "host"}) {
    std::string toml = kSmall + "[shard]\nfrozen_tables = \"embed_tokens=" + residency + "\"\n";
    EXPECT_EQ(report_of(toml, 2).schedule.parameters[0].residency, plan::residency_from_name(residency));
  }
  EXPECT_THROW(report_of(kSmall + "[shard]\nfrozen_tables = \"target_head=stream\"\n", 2), Error);
}

TEST(Plan, TheChainsOfDflashAndSftHaveTheirWorkInThePeak) {
  for (const char* algorithm : {"dflash", "sft"}) {
    std::string toml = kSmall + "[plan]\nalgorithm = \"" + algorithm + "\"\n[capture]\nmax_length = 128\n";
    PlanReport keep = report_of(toml, 2), rebuilt = report_of(toml + "[engine]\nmode = \"recompute\"\n", 2);
    EXPECT_GT(keep.request.load.work_bytes, rebuilt.request.load.work_bytes) << algorithm;
    EXPECT_GT(rebuilt.request.load.work_bytes, 0U) << algorithm;
  }
}

TEST(Plan, ModeAutoStaysWithinItsMemory) {
  std::string toml = kSmall + "[plan]\nalgorithm = \"sft\"\n[capture]\nmax_length = 512\n";
  auto fullest = [](const PlanReport& report) {
    return report.totals[static_cast<size_t>(report.fullest_rank())].resident;
  };
  uint64_t keep = fullest(report_of(toml, 2)),
           rebuilt = fullest(report_of(toml + "[engine]\nmode = \"recompute\"\n", 2));
  uint64_t limit = (keep + rebuilt) / 2;
  ASSERT_LT(rebuilt, keep);
  PlanReport chosen = report_of(toml + "[engine]\nmode = \"auto\"\nmemory = \"" + std::to_string(limit) + "\"\n", 2);
  EXPECT_LE(fullest(chosen), limit);
  EXPECT_GT(fullest(chosen), rebuilt);
  EXPECT_NE(plan_text(chosen).find("recompute"), std::string::npos);
}

TEST(Plan, AdviceIsWhatEachChangeWasTriedToGive) {
  config::Settings settings = settings_of(kSmall +
                                          "[plan]\nmemory = \"2000000\"\n[training]\nbatch_size = 2\n"
                                          "[capture]\nmax_length = 128\n");
  RequestOf request_of = [](config::Settings& own, int world) {
    PlanRequest request = plan_request(own, world);
    set_limits(request, bytes_of_setting(own, "plan.memory"), kUsualBandwidth);
    return request;
  };
  config::Settings first = settings;
  PlanReport report = make_report(request_of(first, 2));
  ASSERT_GT(report.missing(), 0U);
  std::vector<Advice> advice = advise(report, settings, request_of);
  ASSERT_GE(advice.size(), 3U);
  for (size_t i = 1; i < advice.size(); ++i) EXPECT_LE(advice[i - 1].resident, advice[i].resident);
  auto smaller = std::find_if(advice.begin(), advice.end(), [](const Advice& one) {
    return one.change == "training.batch_size=1 with training.micro_batches=16";
  });
  ASSERT_NE(smaller, advice.end());
  config::Settings changed = settings;
  changed.set("training.batch_size=1", "test");
  changed.set("training.micro_batches=16", "test");
  PlanReport then = make_report(request_of(changed, 2));
  EXPECT_EQ(smaller->resident, then.totals[static_cast<size_t>(then.fullest_rank())].resident);
}

TEST(Plan, NoLineOfTheTextIsWiderThanAHundredColumns) {
  std::istringstream text(plan_text(report_of(kSmall, 4)));
  for (std::string line; std::getline(text, line);) EXPECT_LE(line.size(), 100U) << line;
}

TEST(Plan, TheRecordHoldsEveryIntervalAndEveryCollective) {
  PlanReport report = report_of(kSmall, 3);
  Json json = plan_json(report);
  EXPECT_EQ(json.at("parameters").as_array().size(), report.schedule.parameters.size());
  for (const Json& parameter : json.at("parameters").as_array())
    EXPECT_EQ(parameter.at("intervals").as_array().size(), 3U);
  EXPECT_EQ(json.at("first_round").as_array().size(), report.schedule.round.size());
  EXPECT_EQ(json.at("ranks").as_array().size(), 3U);
}

TEST(Plan, ADraftOfAnotherTargetIsRefusedNamingTheKey) {
  config::Settings settings =
      settings_of(kSmall +
                  "[plan.draft]\nvocab_size = 100\ndraft_vocab_size = 10\nhidden_size = 64\nintermediate_size = 128\n"
                  "num_attention_heads = 4\nnum_key_value_heads = 2\nhead_dim = 16\nmax_position_embeddings = 2048\n");
  try {
    plan_request(settings, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kConfig);
    EXPECT_NE(std::string(error.what()).find("plan.draft"), std::string::npos) << error.what();
  }
}

TEST(MemoryLimit, BytesAreReadWithTheirUnit) {
  EXPECT_EQ(bytes_from_text("4096", "x"), 4096U);
  EXPECT_EQ(bytes_from_text("1.5GiB", "x"), 1610612736U);
  EXPECT_EQ(bytes_from_text("2G", "x"), 2000000000U);
  for (const char* text : {"", "GiB", "-1", "1 parsec", "0", "nan", "1e30G"})
    EXPECT_THROW(bytes_from_text(text, "x"), Error) << text;
}

TEST(MemoryLimit, AWordThatIsNoBytesIsRefusedWhereItStands) {
  auto refusal = [](const config::Settings& settings) -> std::string {
    try {
      bytes_of_setting(settings, "plan.memory");
    } catch (const Error& error) {
      return fmt::format("{} {}", static_cast<int>(error.code()), error.what());
    }
    return "none";
  };
  config::Settings settings({"plan"});
  EXPECT_EQ(bytes_of_setting(settings, "plan.memory"), 0U);
  settings.load_text("[plan]\nmemory = \"much\"\n", "run.toml");
  EXPECT_TRUE(refusal(settings).starts_with("78 run.toml:2:1: plan.memory: wanted bytes")) << refusal(settings);
  settings.set("plan.memory=more", "--set");
  EXPECT_TRUE(refusal(settings).starts_with("78 --set: plan.memory: wanted bytes")) << refusal(settings);
  settings.set("plan.memory=most", "--memory");
  EXPECT_TRUE(refusal(settings).starts_with("64 --memory: wanted bytes")) << refusal(settings);
}

struct FakeRoot {
  fs::path path = fs::temp_directory_path() / fs::path("sf-limit-" + std::to_string(getpid()));
  FakeRoot() { fs::create_directories(path); }
  ~FakeRoot() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
};

TEST(MemoryLimit, TheSmallestLimitOfTheControlGroupsHolds) {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   1000 kB\n");
  root.write("sys/fs/cgroup/a/memory.max", "8000\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  MemoryLimit limit = memory_limit(4, root.path);
  EXPECT_EQ(limit.bytes, 2000U);
  EXPECT_EQ(limit.origin, "limit of the control group / 4 ranks");
}

TEST(MemoryLimit, WithoutALimitItIsTheHostsFreeMemory) {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   1000 kB\n");
  EXPECT_EQ(memory_limit(2, root.path).bytes, 512000U);
}

}  // namespace
}  // namespace sf::tool
