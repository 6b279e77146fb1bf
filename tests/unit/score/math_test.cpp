// SPDX-License-Identifier: Apache-2.0
// Rule math: notation, values, where an answer stands.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "score/math_equal.h"
#include "score/math_value.h"
#include "score/rule.h"

namespace sf::score {
namespace {

std::string compared(const std::string& gold, const std::string& answer) {
  auto left = parse_math(gold), right = parse_math(answer);
  if (!left || !right) return left ? "answer refused" : "gold refused";
  MathVerdict verdict = math_equal(*left, *right);
  return verdict == MathVerdict::kEqual ? "equal" : verdict == MathVerdict::kDifferent ? "different" : "undecided";
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

void expect_equal(const Pairs& pairs) {
  for (const auto& [a, b] : pairs) {
    EXPECT_EQ(compared(a, b), "equal") << a << " and " << b;
    EXPECT_EQ(compared(b, a), "equal") << b << " and " << a;
    EXPECT_EQ(math_normal(*parse_math(a)), math_normal(*parse_math(b))) << a << " and " << b;
  }
}
void expect_different(const Pairs& pairs) {
  for (const auto& [a, b] : pairs) {
    EXPECT_EQ(compared(a, b), "different") << a << " and " << b;
    EXPECT_EQ(compared(b, a), "different") << b << " and " << a;
  }
}

TEST(MathEqual, NumbersAreExact) {
  expect_equal({{"\\frac12", "0.5"},
                {"\\frac{2}{4}", "1/2"},
                {"3\\frac{1}{2}", "3.5"},
                {"1,000", "10^3"},
                {"1{,}000", "1000.0"},
                {"0.\\overline{3}", "1/3"},
                {"5!", "120"},
                {"\\binom{5}{2}", "10"},
                {"2^{-3}", "\\frac18"},
                {"\\sqrt{\\frac{9}{4}}", "1.5"},
                {"|-7|", "7"},
                {"\\lfloor 7/2 \\rfloor", "3"},
                {"8^{2/3}", "4"}});
  expect_different(
      {{"\\frac12", "\\frac13"}, {"1/3", "0.33"}, {"-3", "3"}, {"10^{30}", "10^{30}+1"}, {"1000", "10000"}});
}

TEST(MathEqual, NumbersOfAnySizeAreToldApart) {
  EXPECT_EQ(compared("2^{2023}-1", "2^{2023}-2"), "different");
  EXPECT_EQ(compared("2^{2023}", "2\\cdot 2^{2022}"), "equal");
  EXPECT_EQ(compared("100!", "100\\cdot 99!"), "equal");
}

TEST(MathEqual, RootsAndConstantsAreCompared) {
  expect_equal({{"2\\sqrt{3}", "\\sqrt{12}"},
                {"2\\sqrt3", "\\sqrt{3}\\cdot 2"},
                {"\\frac{3\\pi}{4}", "0.75\\pi"},
                {"\\sqrt{3+2\\sqrt2}", "1+\\sqrt 2"},
                {"\\frac{1}{\\sqrt2}", "\\frac{\\sqrt2}{2}"},
                {"\\sqrt[3]{-8}", "-2"},
                {"\\sqrt{-4}", "2i"},
                {"\\log_2 8", "3"},
                {"\\sin\\frac{\\pi}{6}", "\\frac12"}});
  EXPECT_EQ(compared("2\\sqrt{3}", "3.4641016"), "equal");  // rounded to the digits given
  expect_different({{"2\\sqrt{3}", "2\\sqrt5"}, {"2\\sqrt{3}", "3.46"}, {"90", "\\frac{\\pi}{2}"}, {"\\pi", "3.14"}});
}

TEST(MathEqual, ExpressionsWithSymbolsAreComparedAsFunctions) {
  expect_equal({{"(x+1)^2", "x^2+2x+1"},
                {"\\frac{x^2-1}{x-1}", "x+1"},
                {"ab+ba", "2ab"},
                {"\\sin^2 x+\\cos^2 x", "\\sin^2(y)+\\cos^2(y)"}});
  expect_different({{"(x+1)^2", "x^2+1"}, {"x", "y"}, {"x_1", "x_2"}});
}

TEST(MathEqual, PercentUnitsAndDegreesAreRead) {
  EXPECT_EQ(compared("\\frac12", "50\\%"), "equal");
  EXPECT_EQ(compared("50", "50\\%"), "equal");
  EXPECT_EQ(compared("0.5\\%", "50\\%"), "different");
  expect_equal({{"90", "90^\\circ"},
                {"90", "90^{\\circ}"},
                {"90", "90 degrees"},
                {"90", "90\\text{ degrees}"},
                {"417", "417\\text{ cm}^2"},
                {"12", "\\$12"},
                {"60", "60 \\text{ m/s}"}});
}

TEST(MathEqual, SetsTuplesAndIntervalsKeepWhatMatters) {
  expect_equal({{"\\{1,2,3\\}", "\\{3,2,1\\}"},
                {"\\{1,2,3\\}", "1,2,3"},
                {"\\{1,2\\}", "1 \\text{ or } 2"},
                {"(1,2)", "\\left( 1 , 2 \\right)"},
                {"[0,1)", "\\left[0,1\\right)"},
                {"(-\\infty,1)\\cup(2,3)", "(2,3) \\cup (-\\infty,1)"},
                {"x>5", "(5,\\infty)"},
                {"-1 \\le x < 2", "[-1,2)"},
                {"x \\in [1,2]", "[1,2]"},
                {"1 \\pm \\sqrt{2}", "1+\\sqrt2, 1-\\sqrt2"},
                {"5", "\\{5\\}"},
                {"x=1 \\text{ or } x=2", "\\{1,2\\}"}});
  expect_different({{"(1,2)", "(2,1)"},
                    {"(1,2)", "[1,2]"},
                    {"(1,2)", "1,2"},
                    {"\\{1,2,3\\}", "\\{1,2\\}"},
                    {"[0,1)", "(0,1)"},
                    {"417", "\\pm 417"},
                    {"x>5", "x \\ge 5"}});
}

TEST(MathEqual, RelationsAreWhatTheySay) {
  EXPECT_EQ(compared("x=5", "5"), "equal");
  EXPECT_EQ(compared("5", "x = 5"), "equal");
  EXPECT_EQ(compared("33", "25+8=33"), "equal");
  EXPECT_EQ(compared("y=2x+1", "2x+1"), "equal");
  EXPECT_EQ(compared("2x+3y=6", "4x+6y-12=0"), "equal");
  EXPECT_EQ(compared("2x+3y=6", "4x+6y=6"), "different");
  EXPECT_EQ(compared("x=5", "x=-5"), "different");
}

TEST(MathEqual, ValuesBelongToTheirNames) {
  expect_equal({{"x=1,y=2", "y=2, x=1"}, {"x=1 \\text{ or } x=2", "x=2, x=1"}, {"f(1)=3, f(2)=4", "f(2)=4, f(1)=3"}});
  expect_different({{"x=1,y=2", "x=2,y=1"}, {"x>1,y<2", "y>1,x<2"}, {"f(1)=3, f(2)=4", "f(1)=4, f(2)=3"}});
  EXPECT_EQ(compared("x=1,y=2", "1,2"), "equal");  // without names it is not said whose they are
  EXPECT_NE(math_normal(*parse_math("x=1,y=2")), math_normal(*parse_math("x=2,y=1")));
}

TEST(MathEqual, PrimesArePartOfAName) {
  expect_equal(
      {{"f'(x)", "f^{\\prime}(x)"}, {"x'", "x^\\prime"}, {"f''(x)", "f^{\\prime\\prime}(x)"}, {"y'=2x", "2x"}});
  expect_different({{"f'(x)", "f(x)"}, {"x'", "x"}, {"f'(x)", "f''(x)"}});
}

TEST(MathEqual, ANumbersIndexIsItsBase) {
  expect_equal({{"123_{4}", "123_4"}, {"123_{10}", "123_{\\text{10}}"}});
  expect_different({{"123_{4}", "123_{5}"}, {"123_{4}", "132_{4}"}});
  EXPECT_EQ(compared("123_{4}", "123"), "undecided");
  EXPECT_EQ(compared("27", "123_{4}"), "undecided");
}

TEST(MathEqual, UnitsThatAreSaidOnBothSidesAreTheSame) {
  expect_equal({{"5\\text{ hours}", "5 hr"},
                {"5\\text{ cm}^2", "5\\text{ square cm}"},
                {"5", "5\\text{ cm}"},
                {"60 mph", "60\\text{ miles per hour}"},
                {"5'", "5 feet"},
                {"60\\text{ miles per hour}", "60\\text{ miles}/\\text{hour}"},
                {"5\\text{ apples and pears}", "5\\text{ cm}"}});
  expect_different({{"5\\text{ hours}", "5\\text{ minutes}"},
                    {"1\\text{ km}", "1\\text{ cm}"},
                    {"5\\text{ cm}^2", "5\\text{ cm}"},
                    {"5'", "5''"},
                    {"-5 feet", "-5 inches"}});
}

TEST(MathEqual, SymbolsMayBeNegative) {
  expect_equal({{"\\sqrt{x^2}", "|x|"}, {"\\sqrt{x^4}", "x^2"}, {"|a-b|", "|b-a|"}});
  expect_different(
      {{"|x|", "x"}, {"\\sqrt{x^2}", "x"}, {"|a-b|", "a-b"}, {"|a|+|b|", "|a+b|"}, {"\\sqrt{(x-1)^2}", "x-1"}});
  EXPECT_EQ(compared("\\sqrt{ab}", "\\sqrt{a}\\sqrt{b}"), "equal");  // where both have a value
  EXPECT_EQ(compared("\\ln(ab)", "\\ln a+\\ln b"), "equal");
}

TEST(MathEqual, AFunctionIsAppliedNotMultiplied) {
  expect_equal({{"f(2)+f(3)", "f(3)+f(2)"}, {"h(a+b)", "ha+hb"}});
  expect_different({{"f(2)", "2f"}, {"f(2)", "f(3)"}, {"f(2)", "g(2)"}, {"f(2,3)", "f(3,2)"}});
}

TEST(MathEqual, MatricesAreComparedEntryByEntry) {
  EXPECT_EQ(compared("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\begin{bmatrix}1&2\\\\3&\\frac82\\end{bmatrix}"),
            "equal");
  EXPECT_EQ(compared("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\begin{pmatrix}1&3\\\\2&4\\end{pmatrix}"),
            "different");
  EXPECT_EQ(compared("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1&2\\end{pmatrix}"), "different");
}

TEST(MathEqual, WordsAreComparedWithoutCase) {
  EXPECT_EQ(compared("\\text{B}", "B"), "equal");
  EXPECT_EQ(compared("\\text{B}", "(B)"), "equal");
  EXPECT_EQ(compared("\\text{B}", "A"), "different");
  EXPECT_EQ(compared("\\text{odd}", "Odd"), "equal");
}

TEST(MathParser, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"2 0 4", "417 \\pmod{1000}", "\\int_0^1 x dx", "(1,2", "\\frac{1}{", "1 +", "",
                           "a = ", "\\begin{cases}1\\end{cases}"})
    EXPECT_FALSE(parse_math(text)) << text;
}

TEST(MathParser, BoundsDepthAndLength) {
  EXPECT_FALSE(parse_math(std::string(500, '(') + "1" + std::string(500, ')')));
  EXPECT_FALSE(parse_math(std::string(10'000, '1')));
  EXPECT_TRUE(parse_math(std::string(20, '(') + "1" + std::string(20, ')')));
}

TEST(Fractions, AreInLowestTermsAndSpokenForWhenTooLarge) {
  EXPECT_EQ(fraction_of(*parse_math("\\frac{-6}{8}"))->text(), "-3/4");
  EXPECT_EQ(fraction_of(*parse_math("10^{30}"))->text(), "1" + std::string(30, '0'));
  EXPECT_FALSE(fraction_of(*parse_math("10^{40}")));
  EXPECT_FALSE(fraction_of(*parse_math("\\frac{1}{0}")));
}

std::string scored(const std::string& gold, const std::string& text) {
  Verdict verdict = make_rule("math").score(gold, {.text = text});
  return fmt::format("{}:{}", name_of(verdict.outcome), verdict.reason);
}

TEST(MathRule, TheLastStatementCounts) {
  EXPECT_EQ(scored("417", "\\boxed{420}\nAnswer: 417"), "correct:same_text");
  EXPECT_EQ(scored("417", "Answer: 420\nSo \\boxed{417}"), "correct:same_text");
  EXPECT_EQ(scored("417", "Answer: 420 \\boxed{417}"), "wrong:differs");
  EXPECT_EQ(scored("417", "Answer: it is \\boxed{417}."), "correct:same_text");
  EXPECT_EQ(scored("417", "Answer: 417\nMy answer: see above"), "correct:same_text");
  EXPECT_EQ(scored("809", "Answer:\n809"), "correct:same_text");
  EXPECT_EQ(scored("250",
                   "Answer\xEF\xBC\x9A"
                   "250"),
            "correct:same_text");
}

TEST(MathRule, ATextThatEndsInAValueStatesItAndNoOtherNumberDoes) {
  EXPECT_EQ(scored("42", "after simplification we get 42"), "correct:same_text");
  EXPECT_EQ(scored("42", "hence $x = 42$."), "correct:equal");
  EXPECT_EQ(scored("417", "There are 417 apples and 420 pears."), "no_answer:no_statement");
  EXPECT_EQ(scored("0", "so \\boxed{0"), "no_answer:unclosed_box");
  EXPECT_EQ(scored("417", "<think>\\boxed{417} hmm"), "unfinished:unfinished_thinking");
}

TEST(MathRule, DressingIsTakenOff) {
  EXPECT_EQ(scored("42", "Answer: <b>42</b>"), "correct:same_text");
  EXPECT_EQ(scored("417", "Answer: 417 \xF0\x9F\x8E\x89"), "correct:same_text");
  EXPECT_EQ(scored("480", "**Answer: 480**"), "correct:same_text");
  EXPECT_EQ(scored("204", "The answer is 204, since 204 = 4*51"), "correct:same_text");
}

}  // namespace
}  // namespace sf::score
