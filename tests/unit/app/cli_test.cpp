// SPDX-License-Identifier: Apache-2.0
#include "app/cli.h"

#include <gtest/gtest.h>

#include "table.h"

namespace sf::app {
namespace {

using Words = std::vector<std::string>;

std::string misuse(const Words& words) {
  static const Command command = test_command();
  try {
    parse(command, words);
  } catch (const Misuse& misuse) {
    return misuse.message;
  }
  return "accepted";
}

TEST(Cli, OptionsAndPositionalComeInAnyOrder) {
  Command command = test_command();
  for (const Words& words : {Words{"paint", "--colour", "red", "fence"}, Words{"paint", "fence", "--colour=red"}}) {
    Parsed parsed = parse(command, words);
    ASSERT_NE(parsed.verb, nullptr);
    EXPECT_EQ(parsed.verb->name, "paint");
    EXPECT_EQ(parsed.last("colour", ""), "red");
    EXPECT_EQ(parsed.positional, Words{"fence"});
  }
}

TEST(Cli, ShortLettersMeanTheirLongOptions) {
  Command command = test_command();
  Parsed parsed = parse(command, {"look", "-qv", "-c", "a.toml", "-cb.toml", "-o", "out"});
  EXPECT_TRUE(parsed.has("quiet"));
  EXPECT_TRUE(parsed.has("verbose"));
  EXPECT_EQ(parsed.values.at("config"), (Words{"a.toml", "b.toml"}));
  EXPECT_EQ(parsed.last("output", ""), "out");
}

TEST(Cli, ADashIsAValue) {
  Command command = test_command();
  EXPECT_EQ(parse(command, {"look", "-o", "-"}).last("output", ""), "-");
}

TEST(Cli, AfterTwoDashesEverythingIsPositional) {
  Command command = test_command();
  EXPECT_EQ(parse(command, {"paint", "--colour", "red", "--", "--odd"}).positional, Words{"--odd"});
}

TEST(Cli, UnknownOptionsAreNamedWithTheNearestOne) {
  EXPECT_EQ(misuse({"paint", "--color", "red", "fence"}), "unknown option --color (did you mean --colour?)");
  EXPECT_EQ(misuse({"look", "-x"}), "unknown option -x");
}

TEST(Cli, AbbreviationsAreRefused) {
  EXPECT_EQ(misuse({"look", "--verb"}).rfind("unknown option --verb", 0), 0u);
}

TEST(Cli, UnknownVerbsAreNamedWithTheNearestOne) {
  EXPECT_EQ(misuse({"pain"}), "unknown verb 'pain' (did you mean paint?)");
  EXPECT_EQ(misuse({}), "a verb is missing");
}

TEST(Cli, OptionsOfEveryVerbMayStandInFrontOfIt) {
  Command command = test_command();
  for (const Words& words : {Words{"-qv", "--set", "a=b", "-c", "f", "paint", "--colour", "red", "fence"},
                             Words{"--set=a=b", "-cf", "-q", "--verbose", "paint", "fence", "--colour=red"}}) {
    Parsed parsed = parse(command, words);
    ASSERT_NE(parsed.verb, nullptr);
    EXPECT_EQ(parsed.verb->name, "paint");
    EXPECT_TRUE(parsed.has("quiet") && parsed.has("verbose"));
    EXPECT_EQ(parsed.last("config", ""), "f");
    EXPECT_EQ(parsed.last("set", ""), "a=b");
    EXPECT_EQ(parsed.positional, Words{"fence"});
  }
  EXPECT_EQ(parse(command, {"--help", "look"}).act, Parsed::Act::kHelp);
  EXPECT_EQ(misuse({"-q", "loko"}), "unknown verb 'loko' (did you mean look?)");
  EXPECT_EQ(misuse({"--colour", "red", "paint"}), "unknown option --colour");
}

TEST(Cli, MissingAndSuperfluousThingsAreNamed) {
  EXPECT_EQ(misuse({"paint", "fence"}), "--colour NAME is required: colour to paint it with");
  EXPECT_EQ(misuse({"paint", "--colour", "red"}), "FENCE is missing: fence to paint");
  EXPECT_EQ(misuse({"paint", "--colour", "red", "a", "b"}), "unexpected argument 'b'");
  EXPECT_EQ(misuse({"paint", "fence", "--colour"}), "--colour wants a value: --colour NAME");
  EXPECT_EQ(misuse({"look", "--plan=yes"}), "--plan takes no value");
  EXPECT_EQ(misuse({"look", "-o", "a", "-o", "b"}), "--output is given twice");
}

TEST(Cli, ClosedChoicesAreCheckedAndOpenOnesAreNot) {
  EXPECT_EQ(misuse({"paint", "f", "--colour", "red", "--gloss", "wet"}), "--gloss: wanted matt|silk, found 'wet'");
  EXPECT_EQ(misuse({"paint", "f", "--colour", "red", "--gloss", "silk"}), "accepted");
  EXPECT_EQ(misuse({"paint", "f", "--colour", "red", "--start", "elsewhere"}), "accepted");
}

TEST(Cli, RanksBelongToVerbsThatHaveThem) {
  EXPECT_EQ(misuse({"look", "--ranks", "2"}), "accepted");
  EXPECT_EQ(misuse({"paint", "f", "--colour", "red", "--ranks", "2"}), "unknown option --ranks");
}

TEST(Cli, HelpWinsOverWhatIsMissing) {
  Command command = test_command();
  EXPECT_EQ(parse(command, {"paint", "--help"}).act, Parsed::Act::kHelp);
  EXPECT_EQ(parse(command, {"-V"}).act, Parsed::Act::kVersion);
  EXPECT_EQ(parse(command, {"paint", "--print-config"}).act, Parsed::Act::kPrintConfig);
}

TEST(Cli, QuotedWordsReadBackInAShell) {
  EXPECT_EQ(shell_quoted({"sf-test", "--set", "a.b=\"c d\"", "it's", ""}), "sf-test --set 'a.b=\"c d\"' 'it'\\''s' ''");
}

}  // namespace
}  // namespace sf::app
