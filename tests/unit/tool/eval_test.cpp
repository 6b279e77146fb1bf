// SPDX-License-Identifier: Apache-2.0
// Verdicts of several checkpoints: what may be compared, what is said, how it is drawn.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "report/eval_page.h"
#include "tool/eval_curve.h"
#include "tool/eval_series.h"
#include "tool/eval_text.h"

namespace sf::tool {
namespace {

// One answer to each of thirty questions, the first `correct` of them right.
score::Scores verdicts(int step, int correct, const std::string& more = "", const std::string& digest = "d") {
  score::ScoresReader reader(fmt::format("{}-{}.jsonl", step, correct));
  reader.take(fmt::format(
      R"({{"kind":"scores","v":1,"rule":"aime-v1","rule_version":1,"rule_digest":"{}","questions_digest":"q","answers":30,"step":{}{}}})",
      digest, step, more));
  for (int i = 0; i < 30; ++i)
    reader.take(fmt::format(R"({{"id":"{}","sample":0,"outcome":"{}","reason":"r","tokens":{}}})", i,
                            i < correct ? "correct" : "wrong", 100 + i));
  return reader.finish();
}

std::string refusal(std::vector<score::Scores> files) {
  try {
    series_of(std::move(files), "");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string all(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(Series, ComparesEachCheckpointWithTheFirst) {
  EvalSeries series = series_of({verdicts(0, 11), verdicts(140, 23), verdicts(150, 21)}, "");
  EXPECT_FALSE(series.entries[0].paired);
  EXPECT_EQ(series.entries[2].paired->up, 10);
  EXPECT_DOUBLE_EQ(series.entries[2].paired->p, 2.0 / 1024);
  EXPECT_GE(series.entries[1].adjusted_p, series.entries[1].paired->p);
  std::string text = all(series_lines(series, 0));
  EXPECT_NE(text.find("11/30"), std::string::npos) << text;
  EXPECT_NE(text.find("step 140 is the highest of 3 checkpoints, a choice made after looking"), std::string::npos)
      << text;
  EXPECT_NE(text.find("no evidence of a difference"), std::string::npos) << text;
}

// Of thirty answers those after the first `readable` hold none.
score::Scores half_readable(int step, int correct, int readable) {
  score::Scores scores = verdicts(step, correct);
  for (size_t i = static_cast<size_t>(readable); i < 30; ++i) scores.answers[i].outcome = score::Outcome::kTruncated;
  return scores;
}

TEST(Series, SaysHowMuchOfAGainIsForm) {
  const EvalSeries series = series_of({half_readable(0, 5, 15), half_readable(10, 20, 30)}, "");
  EXPECT_NE(all(series.notes)
                .find("step 10 against step 0: +50.0 points = +25.0 of format (readable 15/30, 50.0 % "
                      "(33.2..66.8) before, 30/30, 100.0 % (88.6..100.0) after) and +25.0 of correctness"),
            std::string::npos)
      << all(series.notes);
  EXPECT_EQ(all(series_of({verdicts(0, 5), verdicts(10, 20)}, "").notes).find("of format"), std::string::npos);
}

TEST(Series, DifferentRulesAreRefused) {
  EXPECT_NE(refusal({verdicts(0, 11), verdicts(10, 11, "", "e")}).find("cannot be compared"), std::string::npos);
}

TEST(Series, TwoOriginalsOfOneStepAreRefused) {
  EXPECT_NE(refusal({verdicts(10, 11), verdicts(10, 12)}).find("10-11.jsonl and 10-12.jsonl both claim step 10"),
            std::string::npos);
}

TEST(Series, AReferenceFromOutsideMayClaimAStepOfTheSeries) {
  EvalSeries series = series_of({verdicts(10, 11), verdicts(0, 5), verdicts(10, 12)}, "", true);
  EXPECT_EQ(series.entries[2].paired->up, 1);
}

TEST(Series, AReEvaluationStandsBesideTheOriginal) {
  EvalSeries series = series_of({verdicts(0, 11), verdicts(10, 11), verdicts(10, 12, R"(,"again":true)")}, "");
  std::string text = all(series_lines(series, 0));
  EXPECT_NE(text.find("step 10 "), std::string::npos);
  EXPECT_NE(text.find("step 10 again"), std::string::npos);
  EXPECT_NE(text.find("11/30"), std::string::npos);
  EXPECT_NE(text.find("12/30"), std::string::npos);
}

TEST(Series, OtherQuestionsAreRefused) {
  score::Scores fewer = verdicts(10, 5);
  fewer.ids.pop_back();
  fewer.answers.pop_back();
  EXPECT_NE(refusal({verdicts(0, 11), std::move(fewer)}).find("answer different questions"), std::string::npos);
}

TEST(Series, ANarrowTerminalLosesColumnsFromTheEnd) {
  EvalSeries series = series_of({verdicts(0, 11), verdicts(10, 12)}, "");
  for (const std::string& line : series_lines(series, 60))
    EXPECT_TRUE(line.starts_with("note:") || line.size() <= 60u) << line;
  EXPECT_NE(series_lines(series, 60)[0].find("pass@1"), std::string::npos);
}

// The reference's rewards by step, as its log has them.
constexpr std::string_view kReference =
    "step,reward\n0,-.2667\n10,-.2667\n20,-.2667\n30,-.1333\n40,-.1333\n50,-.1333\n60,-.0667\n70,-.0667\n80,.1333\n90,"
    "0\n"
    "100,.2\n110,.4667\n120,.4\n130,.2\n140,.5333\n150,.4\n";

TEST(ReferenceCurve, IsRedrawnFromItsRewards) {
  std::vector<CurvePoint> points = read_curve(kReference, "curve.csv", 30);
  ASSERT_EQ(points.size(), 16u);
  EXPECT_EQ(points[0].correct, 11);
  EXPECT_EQ(points[14].correct, 23);
  EXPECT_EQ(points[15].correct, 21);
  std::string text = all(curve_lines(points));
  EXPECT_NE(text.find("21.9..54.5"), std::string::npos) << text;
  EXPECT_NE(text.find("59.1..88.2"), std::string::npos) << text;
  EXPECT_NE(text.find("52.1..83.3"), std::string::npos) << text;
  EXPECT_NE(text.find("step 140 is the highest of 16 points"), std::string::npos) << text;
  std::string page = report::page_of(curve_page(points, "reference"));
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_NE(page.find("11/30 → 21/30"), std::string::npos);
  EXPECT_EQ(page.find("http://"), page.find("http://www.w3.org/2000/svg"));  // nothing is fetched
}

TEST(ReferenceCurve, AReEvaluationKeepsTheOriginalPoint) {
  std::vector<CurvePoint> points =
      read_curve("step,reward,again\n0,-.2667,0\n10,-.2667,0\n10,-.2,1\n", "curve.csv", 30);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[1].correct, 11);
  EXPECT_FALSE(points[1].again);
  EXPECT_EQ(points[2].correct, 12);
  EXPECT_TRUE(points[2].again);
}

TEST(ReferenceCurve, AValueThatIsNoCountIsRefusedByLine) {
  try {
    read_curve("step,reward\n0,-.25\n", "curve.csv", 30);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("curve.csv:2: -0.25 is no whole number of 30 answers"), std::string::npos)
        << error.what();
  }
}

TEST(Marked, ShowsTheSpanOnCharacterBorders) {
  EXPECT_EQ(marked("the answer is 42.", {14, 16}, 7), "[...]wer is >>>42<<<.");
  EXPECT_EQ(marked("\xE7\xAD\x94\xE7\xAD\x94"
                   "42",
                   {6, 8}, 4),
            "[...]\xE7\xAD\x94>>>42<<<");
  EXPECT_EQ(marked(std::string_view("a\0b", 3), {0, 0}, 10), std::string("a\0b", 3));
}

}  // namespace
}  // namespace sf::tool
