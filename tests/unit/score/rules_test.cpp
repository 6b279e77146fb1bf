// SPDX-License-Identifier: Apache-2.0
#include "score/rule.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "golden_rows.h"
#include "score/public_rules.h"

namespace sf::score {
namespace {

std::string verdict_text(const Rule& rule, std::string_view gold, std::string_view text) {
  Verdict verdict = rule.score(gold, {.text = text});
  return fmt::format("{}:{}", name_of(verdict.outcome), verdict.reason);
}

void expect_column(const std::string& rule_name, const std::string& column) {
  Rule rule = make_rule(rule_name);
  size_t rows = 0;
  for (const Json& row : golden_rows("score/aime_table")) {
    Verdict verdict = rule.score(row.at("gold").as_string(), {.text = row.at("response").as_string()});
    EXPECT_EQ(verdict.correct(), row.at(column).as_bool())
        << rule_name << " row " << row.at("row").as_int() << ": " << row.at("why").as_string() << " (" << verdict.reason
        << ", " << verdict.normal << ")";
    ++rows;
  }
  EXPECT_EQ(rows, 50u);
}

TEST(Table, AllFiftyRowsAreRightUnderAimeV1) {
  expect_column("aime-v1", "right");
}
TEST(Table, TheHarnessColumnIsReproduced) {
  expect_column("lm-eval-aime", "lm-eval-aime");
}
TEST(Table, TheMathRewardColumnIsReproduced) {
  expect_column("verl-math-reward", "verl-math-reward");
}
TEST(Table, TheDapoColumnIsReproduced) {
  expect_column("verl-math-dapo", "verl-math-dapo");
}
TEST(Table, TheOldDapoColumnIsReproduced) {
  expect_column("verl-math-dapo-old", "verl-math-dapo-old");
}

TEST(Aime, SaysWhyAnAnswerIsNotCorrect) {
  Rule rule = make_rule("aime-v1");
  EXPECT_EQ(verdict_text(rule, "42", "\\boxed{42}"), "correct:equal");
  EXPECT_EQ(verdict_text(rule, "42", "\\boxed{43}"), "wrong:differs");
  EXPECT_EQ(verdict_text(rule, "42", "\\boxed{42.5}"), "wrong:not_an_integer");
  EXPECT_EQ(verdict_text(rule, "42", "\\boxed{1042}"), "out_of_range:out_of_range");
  EXPECT_EQ(verdict_text(rule, "42", "\\boxed{-42}"), "out_of_range:out_of_range");
  EXPECT_EQ(verdict_text(rule, "42", "\\boxed{99999999999999999999}"), "out_of_range:out_of_range");
  EXPECT_EQ(verdict_text(rule, "42", "it is 42"), "no_answer:no_statement");
  EXPECT_EQ(verdict_text(rule, "42", "so \\boxed{42"), "no_answer:unclosed_box");
  EXPECT_EQ(verdict_text(rule, "42", "\\boxed{}"), "no_answer:empty_box");
  EXPECT_EQ(verdict_text(rule, "42", "<think>\\boxed{42}"), "unfinished:unfinished_thinking");
  EXPECT_EQ(verdict_text(rule, "42", "I'm sorry, but I cannot do that."), "refused:sorry");
}

TEST(Aime, AnAnswerCutByTheLengthLimitIsTruncatedOnlyIfItStatesNothing) {
  Rule rule = make_rule("aime-v1");
  EXPECT_EQ(rule.score("42", {.text = "so \\boxed{4", .cut = true}).outcome, Outcome::kTruncated);
  EXPECT_EQ(rule.score("42", {.text = "<think> and", .cut = true}).outcome, Outcome::kTruncated);
  EXPECT_EQ(rule.score("42", {.text = "\\boxed{42} and", .cut = true}).outcome, Outcome::kCorrect);
}

TEST(Aime, AThinkingPartOpenedByThePromptCountsAsOpened) {
  Rule rule = make_rule("aime-v1");
  EXPECT_EQ(rule.score("42", {.text = "\\boxed{42}", .opened_thinking = true}).outcome, Outcome::kUnfinished);
  EXPECT_EQ(rule.score("42", {.text = "no</think>\\boxed{42}", .opened_thinking = true}).outcome, Outcome::kCorrect);
}

TEST(Aime, TheSpanIsWhereTheAnswerStands) {
  Rule rule = make_rule("aime-v1");
  std::string text = "<think>\\boxed{1}</think> \xE7\xAD\x94 \\boxed{ 042 }.";
  Verdict verdict = rule.score("42", {.text = text});
  EXPECT_EQ(verdict.span.of(text), " 042 ");
  EXPECT_EQ(verdict.normal, "42");
  text = "The answer is **204**, as shown";
  EXPECT_EQ(rule.score("204", {.text = text}).span.of(text), "204");
}

TEST(Aime, OptionsGradeUnfinishedThinkingAndTheLastNumber) {
  EXPECT_TRUE(make_rule("aime-v1", {.allow_unfinished = true}).score("7", {.text = "<think>\\boxed{7}"}).correct());
  EXPECT_TRUE(make_rule("aime-v1", {.last_number = true}).score("7", {.text = "3 and then 7."}).correct());
  EXPECT_FALSE(make_rule("aime-v1").score("7", {.text = "3 and then 7."}).correct());
}

TEST(Aime, RefusesGoldsThatNoAnswerCanBe) {
  Rule rule = make_rule("aime-v1");
  EXPECT_EQ(rule.refuses_gold("336^\\circ"), "");
  EXPECT_EQ(rule.refuses_gold("025"), "");
  EXPECT_NE(rule.refuses_gold("1000"), "");
  EXPECT_NE(rule.refuses_gold("-1"), "");
  EXPECT_NE(rule.refuses_gold("\\frac{1}{2}"), "");
}

TEST(Aime, OnlyAnEqualityStatesWhatIsRightOfIt) {
  Rule rule = make_rule("aime-v1");
  for (const char* no : {"\\boxed{\\not= 12}", "\\boxed{n \\not = 12}", "\\boxed{\\neq 12}", "\\boxed{n >= 12}"})
    EXPECT_EQ(verdict_text(rule, "12", no), "wrong:not_an_integer") << no;
  for (const char* yes : {"\\boxed{n = 12}", "\\boxed{1\\,2}", "\\boxed{1~2}", "\\boxed{1\\;2}", "\\boxed{1\\!2}"})
    EXPECT_EQ(verdict_text(rule, "12", yes), "correct:equal") << yes;
}

// Stated by running the grader itself.
TEST(Dapo, NormalFormsAreTheGradersOwn) {
  const std::vector<std::pair<std::string, std::string>> kForms = {{"x = 5", "5"},
                                                                   {"5,000", "5000"},
                                                                   {"1,2", "12"},
                                                                   {"\\frac12", "\\frac{1}{2}"},
                                                                   {"\\dfrac12", "\\dfrac{1}{2}"},
                                                                   {"$\\boxed{42}$", "42"},
                                                                   {"12 cm", "12"},
                                                                   {"12 degrees", "12"},
                                                                   {"\\text{12}", "12"},
                                                                   {"3.$", "3"},
                                                                   {"\\sqrt3", "\\sqrt{3}"},
                                                                   {"1{,}000", "1000"},
                                                                   {"10\\%", "10\\%"},
                                                                   {"an apple", "apple"},
                                                                   {"x=y=3", "3"},
                                                                   {"$5$ and $6$", "5"},
                                                                   {"\\mathrm{th}7", "7"},
                                                                   {"90^\\circ", "90"},
                                                                   {"$x$ is $\\frac34$", "x"},
                                                                   {"frac ab", "frac{a}{b}"},
                                                                   {"(1, 2)", "(1,2)"},
                                                                   {"\\overline{AB}", "AB"},
                                                                   {"\\textbf{(B)} 3", "(B)3"},
                                                                   {"\\$5.00", "5.00"},
                                                                   {".5", ".5"},
                                                                   {"042", "042"}};
  for (const auto& [given, wanted] : kForms) EXPECT_EQ(dapo_normal(given), wanted) << given;
}

TEST(Dapo, ScoresAreTheGradersOwn) {
  Rule rule = make_rule("verl-math-dapo");
  auto correct = [&](const std::string& text, const std::string& gold = "42") {
    return rule.score(gold, {.text = text}).correct();
  };
  EXPECT_TRUE(correct("Answer: 41\nAnswer: $42$"));
  EXPECT_TRUE(correct("answer :  42 "));
  EXPECT_TRUE(correct("Answer: \\boxed{42}"));
  EXPECT_TRUE(correct("the result is \\boxed{42}"));
  EXPECT_FALSE(correct("\\boxed{42}" + std::string(95, 'y')));
  EXPECT_TRUE(correct("\\boxed{42}" + std::string(89, 'y')));
  EXPECT_FALSE(correct("Answer: 42" + std::string(299, 'y')));
  EXPECT_TRUE(correct("Answer: 42\n" + std::string(289, 'y')));
  EXPECT_FALSE(correct("Answer: 042"));
  EXPECT_TRUE(correct("Answer: $\\frac{1}{2}$", "\\frac12"));
  EXPECT_TRUE(correct("Answer:\n42"));
  EXPECT_TRUE(correct("Answer: 1,000", "1000"));
  EXPECT_TRUE(correct("Answer: x = 42"));
  EXPECT_FALSE(correct(""));
  EXPECT_FALSE(correct("\\boxed{ 42 }"));
  EXPECT_TRUE(correct("Answer: 42 units"));
  EXPECT_FALSE(correct("Answer: 43 \\boxed{42}"));
}

TEST(Dapo, TheWindowIsCutOnCharactersNotOnBytes) {
  std::string wide;
  for (int i = 0; i < 289; ++i) wide += "\xE7\xAD\x94";
  EXPECT_TRUE(make_rule("verl-math-dapo").score("42", {.text = "Answer: 42\n" + wide}).correct());
}

TEST(MathReward, EquivalencesAreTheGradersOwn) {
  Rule rule = make_rule("verl-math-reward");
  auto correct = [&](const std::string& found, const std::string& gold) {
    return rule.score(gold, {.text = "\\boxed{" + found + "}"}).correct();
  };
  EXPECT_TRUE(correct("0.5", "\\frac12"));
  EXPECT_TRUE(correct("1/2", "\\frac12"));
  EXPECT_FALSE(correct("2/4", "\\frac12"));
  EXPECT_FALSE(correct("10", "10.0"));
  EXPECT_TRUE(correct("-1/2", "\\frac{-1}{2}"));
  EXPECT_TRUE(correct("k = 7", "7"));
  EXPECT_FALSE(correct("abc=5", "5"));
  EXPECT_FALSE(rule.score("7", {.text = "\\fbox{7}"}).correct());
}

TEST(Gsm8k, TheNumberAfterTheHashesCountsElseTheLast) {
  Rule rule = make_rule("gsm8k");
  EXPECT_TRUE(rule.score("work\n#### 1,234", {.text = "so 5.\n#### $1234.00"}).correct());
  EXPECT_TRUE(rule.score("72", {.text = "It is 3, hence 72."}).correct());
  EXPECT_FALSE(rule.score("72", {.text = "#### 7 of 72"}).correct());
  EXPECT_EQ(rule.score("72", {.text = "none"}).outcome, Outcome::kNoAnswer);
}

TEST(Exact, ComparesTheWholeVisibleText) {
  Rule rule = make_rule("exact");
  EXPECT_TRUE(rule.score("Paris", {.text = "<think>hm</think>\n Paris \n"}).correct());
  EXPECT_FALSE(rule.score("Paris", {.text = "paris"}).correct());
}

TEST(Rules, DigestsNameEveryTableAndOption) {
  EXPECT_NE(make_rule("aime-v1").digest(), make_rule("aime-v1", {.last_number = true}).digest());
  for (const std::string& name : rule_names()) {
    if (name == "regex") continue;
    EXPECT_EQ(make_rule(name).digest().size(), 64u);
    EXPECT_EQ(make_rule(name).digest(), make_rule(name).digest());
  }
}

// A digest that changes names another rule: raise the rule's version with it, or published verdicts lose their meaning.
TEST(Rules, TablesOfAVersionStayAsTheyAre) {
  const std::vector<std::tuple<std::string, int, std::string>> kVersions = {
      {"aime-v1", 2, "b99ed4c5e3c8"},
      {"math", 2, "67d18ca01480"},
      {"exact", 1, "d84951ef0afd"},
      {"gsm8k", 1, "202128d8d357"},
      {"lm-eval-aime", 1, "d8be2701e596"},
      {"verl-math-dapo", 1, "5cf3ef58e4b4"},
      {"verl-math-dapo-old", 1, "eb19be087ae1"},
      {"verl-math-reward", 1, "07631dbffcc2"},
      {"verl-prime-math", 2, "a5d4e0862a87"},
  };
  for (const auto& [name, version, digest] : kVersions) {
    EXPECT_EQ(make_rule(name).version(), version) << name;
    EXPECT_EQ(make_rule(name).digest().substr(0, 12), digest) << name;
  }
}

TEST(Rules, AnUnknownNameIsRefusedWithTheListOfNames) {
  try {
    make_rule("aime");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kUsage);
    EXPECT_NE(error.message().find("aime-v1"), std::string::npos);
  }
  EXPECT_THROW(make_rule("exact", {.last_number = true}), Error);
  EXPECT_THROW(make_rule("regex"), Error);
}

}  // namespace
}  // namespace sf::score
