// SPDX-License-Identifier: Apache-2.0
#include "config/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/rng.h"
#include "config/origins.h"

namespace sf::config {
namespace {

Error caught(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  return Error(Exit::kOk, "nothing was thrown");
}

bool has(const Error& error, std::string_view part) {
  return error.message().find(part) != std::string::npos;
}

#define EXPECT_SAYS(error, part) EXPECT_TRUE(has(error, part)) << (error).message()

TEST(Schema, EveryDefaultIsAcceptableAndEveryKeyHasADoc) {
  for (const Key& key : schema()) {
    Settings settings({key.name.substr(0, key.name.find('.'))});
    EXPECT_NO_THROW(settings.set_value(key.name, key.otherwise, "--set")) << key.name;
    EXPECT_FALSE(key.doc.empty()) << key.name;
    EXPECT_LE(key.doc.size(), 90u) << key.name;
  }
}

TEST(Schema, SectionsAreContiguousAndNamesUnique) {
  std::vector<std::string> names;
  std::string section;
  std::vector<std::string> seen;
  for (const Key& key : schema()) {
    EXPECT_EQ(std::count(names.begin(), names.end(), key.name), 0) << key.name;
    names.push_back(key.name);
    std::string now = key.name.substr(0, key.name.find('.'));
    if (now != section) {
      EXPECT_EQ(std::count(seen.begin(), seen.end(), now), 0) << now;
      seen.push_back(now);
      section = now;
    }
  }
}

TEST(Settings, DefaultsAreThereWithTheirOrigin) {
  Settings settings({"training"});
  EXPECT_DOUBLE_EQ(settings.get_float("training.learning_rate"), 1e-4);
  EXPECT_EQ(settings.get_int("training.unroll"), 7);
  EXPECT_EQ(settings.origin("training.unroll"), "default");
  EXPECT_FALSE(settings.given("training.unroll"));
}

TEST(Settings, FileValuesCarryFileLineAndColumn) {
  Settings settings({"training"});
  settings.load_text("[training]\nlearning_rate = 1e-3\n  unroll = 3\n", "demo.toml");
  EXPECT_DOUBLE_EQ(settings.get_float("training.learning_rate"), 1e-3);
  EXPECT_EQ(settings.origin("training.learning_rate"), "demo.toml:2:1");
  EXPECT_EQ(settings.origin("training.unroll"), "demo.toml:3:3");
}

TEST(Settings, LaterOriginsWin) {
  Settings settings({"training"});
  settings.load_text("training.unroll = 3", "a.toml");
  settings.load_text("training.unroll = 4", "b.toml");
  EXPECT_EQ(settings.get_int("training.unroll"), 4);
  settings.set("training.unroll=5", "--set");
  EXPECT_EQ(settings.get_int("training.unroll"), 5);
  EXPECT_EQ(settings.origin("training.unroll"), "--set");
}

TEST(Settings, AWholeNumberServesAsAFloat) {
  Settings settings({"training"});
  settings.set("training.max_grad_norm=1", "--set");
  EXPECT_DOUBLE_EQ(settings.get_float("training.max_grad_norm"), 1);
}

TEST(Settings, AWordNeedsNoQuotesForAStringKey) {
  Settings settings({"engine", "generate"});
  settings.set("engine.mode=recompute", "--set");
  EXPECT_EQ(settings.get_string("engine.mode"), "recompute");
  settings.set("engine.mode=\"keep\"", "--set");
  EXPECT_EQ(settings.get_string("engine.mode"), "keep");
  settings.set("generate.stop=[\"\\n\\n\", \"END\"]", "--set");
  EXPECT_EQ(settings.get_strings("generate.stop"), (std::vector<std::string>{"\n\n", "END"}));
}

TEST(Settings, UnknownKeyInAFileIsUsageWithPlaceAndSuggestion) {
  Settings settings({"training"});
  Error error = caught([&] { settings.load_text("[training]\nlearning_rat = 1e-3\n", "demo.toml"); });
  EXPECT_EQ(error.code(), Exit::kUsage);
  EXPECT_SAYS(error, "demo.toml:2:1");
  EXPECT_SAYS(error, "did you mean training.learning_rate?");
}

TEST(Settings, UnknownKeyOfSetIsUsageAndAForeignWordIsTranslated) {
  Settings settings({"training"});
  Error error = caught([&] { settings.set("training.ttt_length=3", "--set"); });
  EXPECT_EQ(error.code(), Exit::kUsage);
  EXPECT_SAYS(error, "did you mean training.unroll?");
}

TEST(Settings, EverySuggestionIsAKey) {
  Settings settings({"training", "draft"});
  for (const char* foreign :
       {"lr", "ttt_length", "num_epochs", "lr_scheduler_type", "max_norm", "grad_clip", "save_interval", "log_interval",
        "max_checkpoints", "gradient_accumulation_steps", "draft_vocab_size"}) {
    std::string message = caught([&] { settings.set(std::string("training.") + foreign + "=1", "--set"); }).message();
    size_t begin = message.find("did you mean ");
    ASSERT_NE(begin, std::string::npos) << message;
    begin += 13;
    std::string key = message.substr(begin, message.find('?') - begin);
    EXPECT_NO_THROW(settings.origin(key)) << message;
  }
}

TEST(Settings, RightKeyInTheWrongSectionIsSuggested) {
  Settings settings({"training", "engine"});
  EXPECT_SAYS(caught([&] { settings.set("engine.learning_rate=1", "--set"); }), "did you mean training.learning_rate?");
}

TEST(Settings, OutOfRangeIsConfigurationAndSaysAllFourThings) {
  Settings settings({"training"});
  Error error = caught([&] { settings.load_text("[training]\nlearning_rate = -1\n", "demo.toml"); });
  EXPECT_EQ(error.code(), Exit::kConfig);
  EXPECT_EQ(error.message(), "demo.toml:2:1: training.learning_rate: wanted a number from 0 to 1, found -1");
}

TEST(Settings, WrongTypeAndWrongChoiceAreConfiguration) {
  Settings settings({"training", "engine"});
  EXPECT_EQ(caught([&] { settings.set("training.unroll=2.5", "--set"); }).code(), Exit::kConfig);
  EXPECT_EQ(caught([&] { settings.set("training.unroll=\"3\"", "--set"); }).code(), Exit::kConfig);
  EXPECT_EQ(caught([&] { settings.set("training.learning_rate=nan", "--set"); }).code(), Exit::kConfig);
  Error error = caught([&] { settings.set("engine.mode=recompte", "--set"); });
  EXPECT_EQ(error.code(), Exit::kConfig);
  EXPECT_SAYS(error, "one of keep, recompute");
  EXPECT_SAYS(error, "did you mean recompute?");
}

TEST(Settings, BadTomlIsConfigurationWithPlace) {
  Settings settings({"training"});
  Error error = caught([&] { settings.load_text("[training]\nunroll = = 3\n", "demo.toml"); });
  EXPECT_EQ(error.code(), Exit::kConfig);
  EXPECT_SAYS(error, "demo.toml:2:");
}

TEST(Settings, MalformedAssignmentsAreUsage) {
  Settings settings({"training"});
  for (const char* text : {"training.unroll", "=3", ""})
    EXPECT_EQ(caught([&] { settings.set(text, "--set"); }).code(), Exit::kUsage) << text;
}

TEST(Settings, AValueThatIsNoTomlIsConfigurationLikeOneOfTheWrongType) {
  Settings settings({"training"});
  for (const char* text : {"training.unroll=x", "training.unroll=", "training.unroll=[", "training.unroll=3\nseed=1",
                           "training.unroll=1979-05-27", "training.unroll=\"x\"", "training.unroll=1.5"}) {
    Error error = caught([&] { settings.set(text, "--set"); });
    EXPECT_EQ(error.code(), Exit::kConfig) << text;
    EXPECT_SAYS(error, "--set: training.unroll: wanted a whole number from 1 to 32, found ");
  }
}

TEST(Settings, KeysOfOtherSectionsAreCheckedInFilesAndRefusedOnTheCommandLine) {
  Settings settings({"training"});
  settings.load_text("[training]\nunroll = 3\n[capture]\nmax_length = 128\n", "run.toml");
  EXPECT_EQ(settings.unread(), std::vector<std::string>{"capture.max_length"});
  EXPECT_EQ(caught([&] { settings.load_text("[capture]\nmax_length = 0\n", "run.toml"); }).code(), Exit::kConfig);
  Error error = caught([&] { settings.set("capture.max_length=128", "--set"); });
  EXPECT_EQ(error.code(), Exit::kUsage);
  EXPECT_SAYS(error, "capture.max_length is not read here (read: training)");
}

TEST(Settings, MissingFileIsNoInput) {
  Settings settings({"training"});
  EXPECT_EQ(caught([&] { settings.load_file("/nonexistent/demo.toml"); }).code(), Exit::kNoInput);
}

TEST(Settings, ATableIsOneValueOrThePathOfAFile) {
  Settings settings({"plan"});
  settings.load_text("[plan.target]\nhidden_size = 64\nlayer_types = [\"a\"]\nrope = { theta = 1.5 }\n", "x.toml");
  EXPECT_EQ(settings.get_table("plan.target").dump(), R"({"hidden_size":64,"layer_types":["a"],"rope":{"theta":1.5}})");
  EXPECT_EQ(settings.origin("plan.target"), "x.toml:1:7");
  Settings second({"plan"});
  second.load_text(settings.resolved_toml(), "resolved.toml");
  EXPECT_EQ(second.resolved(), settings.resolved());
  settings.set("plan.target=target/config.json", "--set");
  EXPECT_EQ(settings.get_table("plan.target").as_string(), "target/config.json");
  settings.set("plan.target={ hidden_size = 8 }", "--set");
  EXPECT_EQ(settings.get_table("plan.target").at("hidden_size").as_int(), 8);
  EXPECT_THROW(settings.set("plan.target=\"a\" # b\nc", "--set"), Error);
}

TEST(Settings, WhatNobodyAppliedIsNamed) {
  Settings settings({"training"});
  settings.set("training.unroll=3", "--set");
  settings.set("training.seed=1", "--set");
  settings.applied("training.unroll", "3", "1 draft", "model");
  settings.applied("training.unroll", "3", "1 draft", "model");
  settings.applied("training.beta1", "0.9", "11 parameters", "engine");
  EXPECT_EQ(settings.unapplied(), std::vector<std::string>{"training.seed"});
  EXPECT_EQ(settings.echo(),
            (std::vector<Echo>{{"training.beta1", "applied training.beta1=0.9 to 11 parameters by engine"},
                               {"training.unroll", "applied training.unroll=3 to 1 draft by model"}}));
}

TEST(Settings, WhatReachedNothingIsIdle) {
  Settings settings({"training"});
  settings.applied("training.unroll", "3", "0 drafts", "model");
  settings.applied("training.beta1", "0.9", "10 parameters", "engine");
  std::vector<Echo> said = settings.echo();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_FALSE(said[0].idle);
  EXPECT_TRUE(said[1].idle);
}

TEST(Settings, ResolvedTomlReadsBackToTheSameValues) {
  Settings first({"training", "generate"});
  first.set("training.learning_rate=3e-4", "--set");
  first.set("generate.stop=[\"a\\\"b\", \"\\u00e9\"]", "--set");
  Settings second({"training", "generate"});
  second.load_text(first.resolved_toml(), "resolved.toml");
  EXPECT_EQ(first.resolved(), second.resolved());
  EXPECT_EQ(first.digest(), second.digest());
  EXPECT_NE(first.resolved_toml().find("# --set"), std::string::npos);
}

TEST(Settings, AnyBytesAreAcceptedOrRefusedByAnErrorOfOurs) {
  const std::string seed = "[training]\nlearning_rate = 1e-3\nunroll = 3\n[generate]\nstop = [\"a\", 'b']\n";
  Rng rng(7, "toml");
  for (uint64_t round = 0; round < 400; ++round) {
    std::string text = seed;
    for (uint64_t edit = 0; edit < 4; ++edit)
      text[rng.below(text.size(), round, edit)] = static_cast<char>(rng.below(256, round, 100 + edit));
    Settings settings({"training", "generate"});
    try {
      settings.load_text(text, "fuzz.toml");
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Exit::kConfig || error.code() == Exit::kUsage) << error.what();
      EXPECT_EQ(error.message().rfind("fuzz.toml:", 0), 0u) << error.what();
    }
  }
}

TEST(Origins, AreThoseOfTheFirstKeyThatAMessageNames) {
  Settings settings({"training", "grpo"});
  settings.load_text("[grpo]\nkl = \"k2\"\nkl_coef = 1.0\n", "rl.toml");
  settings.set("training.epochs=0", "--set");
  EXPECT_EQ(origin_of_named(settings, "grpo.kl: wanted something else"), "rl.toml:2:1");
  EXPECT_EQ(origin_of_named(settings, "the sum of grpo.kl_coef."), "rl.toml:3:1");
  EXPECT_EQ(origin_of_named(settings, "training.epochs = 0 is below grpo.kl"), "--set");
  EXPECT_EQ(origin_of_named(settings, "grpo.kl (rl.toml:2:1) is odd"), "");
  EXPECT_EQ(origin_of_named(settings, "grpo.prompts and my_grpo.kl are odd"), "");
}

TEST(Judged, ARefusalNamesItsKeyOnce) {
  for (const char* said : {"wanted k1", "grpo.kl: wanted k1"}) {
    const Error error = caught([&] { judged("grpo.kl", [&] { fail(Exit::kConfig, "{}", said); }); });
    EXPECT_STREQ(error.what(), "grpo.kl: wanted k1");
  }
}

TEST(Origins, AValueIsChangedHoweverItIsWritten) {
  Settings settings({"generate"});
  auto changed = [&](const char* name) {
    auto found = std::ranges::find(schema(), name, &Key::name);
    return is_changed(settings, *found);
  };
  settings.set("generate.top_p=1", "--set");
  settings.set("generate.min_p=0.5", "--set");
  EXPECT_FALSE(changed("generate.top_p"));
  EXPECT_TRUE(changed("generate.min_p"));
  EXPECT_FALSE(changed("generate.top_k"));
  EXPECT_FALSE(changed("training.epochs")) << "it is not read here";
}

TEST(Nearest, FindsTyposAndKeepsQuietOtherwise) {
  EXPECT_EQ(nearest("fortmat", {"output", "format"}), "format");
  EXPECT_EQ(nearest("targte", {"target", "draft"}), "target");
  EXPECT_EQ(nearest("zzzzzz", {"target", "draft"}), "");
  EXPECT_EQ(nearest("", {"target"}), "");
}

}  // namespace
}  // namespace sf::config
