// SPDX-License-Identifier: Apache-2.0
// Answers that nobody meant: work grows with length alone, and no bytes are too strange for a verdict.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <functional>

#include "base/error.h"
#include "base/rng.h"
#include "golden_rows.h"
#include "score/rows.h"
#include "score/rule.h"
#include "score/scores.h"
#include "score/strings.h"

namespace sf::score {
namespace {

std::string repeated(std::string_view part, size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() < bytes) text += part;
  return text;
}

std::vector<Rule> all_rules() {
  std::vector<Rule> rules;
  for (const std::string& name : rule_names())
    if (name != "regex") rules.push_back(make_rule(name));
  return rules;
}

struct Shape {
  const char* name;
  std::function<std::string(size_t bytes)> make;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"open braces", [](size_t n) { return repeated("{", n); }},
      {"open boxes", [](size_t n) { return repeated("\\boxed{", n); }},
      {"nested braces", [](size_t n) { return "\\boxed{" + repeated("{", n / 2) + "42" + repeated("}", n / 2) + "}"; }},
      {"boxes without argument", [](size_t n) { return repeated("\\boxed ", n); }},
      {"blanks after boxes", [](size_t n) { return "\\boxed" + repeated(" ", n); }},
      {"boxes of nothing", [](size_t n) { return repeated("\\boxed{}", n); }},
      {"answer words", [](size_t n) { return repeated("answer ", n); }},
      {"answer lines", [](size_t n) { return repeated("answer:\n", n); }},
      {"one endless answer line", [](size_t n) { return "Answer: " + repeated("a = ", n); }},
      {"thinking", [](size_t n) { return repeated("<think>", n); }},
      {"backslashes", [](size_t n) { return "\\boxed{" + repeated("\\", n); }},
      {"dollars", [](size_t n) { return repeated("$", n); }},
      {"digits", [](size_t n) { return "\\boxed{" + repeated("7", n) + "}"; }},
      {"thousands", [](size_t n) { return "\\boxed{1" + repeated(",000", n) + "}"; }},
      {"fractions", [](size_t n) { return "\\boxed{" + repeated("\\frac", n) + "}"; }},
      {"nested fractions",
       [](size_t n) { return "\\boxed{" + repeated("\\frac{1}{", n) + "2" + repeated("}", n / 9) + "}"; }},
      {"text wrappers", [](size_t n) { return "Answer: " + repeated("\\text{", n); }},
      {"hashes", [](size_t n) { return repeated("####", n); }},
      {"zero bytes", [](size_t n) { return std::string(n, '\0'); }},
      {"continuation bytes", [](size_t n) { return std::string(n, '\x80'); }},
      {"circles", [](size_t n) { return "\\boxed{" + repeated("^\\circ", n) + "}"; }},
      {"is", [](size_t n) { return repeated("is ", n); }},
  };
  return all;
}

// Processor time, so that a busy machine does not decide; the least of `tries`.
double seconds(const Rule& rule, const std::string& text, int tries) {
  double best = 1e9;
  for (int i = 0; i < tries; ++i) {
    std::clock_t start = std::clock();
    rule.score("42", {.text = text});
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

// Quadratic work would take 64 times as long for 8 times the bytes. Short times are noise: they may take what they
// like.
TEST(Hostile, WorkGrowsWithLengthAlone) {
  constexpr size_t kShort = 32'768, kLong = 8 * kShort;
  for (const Rule& rule : all_rules())
    for (const Shape& shape : shapes()) {
      double much = seconds(rule, shape.make(kLong), 1);
      if (much < 0.02) continue;
      much = std::min(much, seconds(rule, shape.make(kLong), 4));  // the machine may have been busy
      double little = seconds(rule, shape.make(kShort), 3);
      EXPECT_LT(much, 24 * little) << rule.name() << ", " << shape.name << ": " << little << " s for 32 KiB, " << much
                                   << " s for 256 KiB";
    }
}

TEST(Hostile, TenMegabytesAreJudgedInSeconds) {
  const std::string boxes = repeated("\\boxed{", 10'000'000);
  const std::string braces = "answer: " + repeated("{", 5'000'000) + repeated("}", 5'000'000);
  for (const Rule& rule : all_rules()) {
    for (const std::string& text : {boxes, braces}) {
      double took = seconds(rule, text, 1);
      if (took >= 3) took = seconds(rule, text, 2);  // another may have had the core's caches
      EXPECT_LT(took, 3) << rule.name();
    }
  }
}

TEST(Hostile, TenThousandNestedBracesAreNoAnswerAndNoCrash) {
  std::string text = "\\boxed{" + std::string(10'000, '{') + "42" + std::string(10'000, '}') + "}";
  for (const Rule& rule : all_rules())
    EXPECT_NE(rule.score("42", {.text = text}).outcome, Outcome::kUndecided) << rule.name();
}

// Pieces of real answers and of notation, cut and joined at random; a verdict's span must lie inside the text.
TEST(Hostile, RandomTextsGetVerdicts) {
  const bool soak = std::getenv("SF_SOAK") != nullptr;
  const std::vector<std::string> kPieces = {"\\boxed{",
                                            "}",
                                            "{",
                                            "\\frac",
                                            "\\sqrt",
                                            "\\text{",
                                            "$",
                                            "=",
                                            "Answer: ",
                                            "\n",
                                            "####",
                                            "</think>",
                                            "<think>",
                                            "\\left(",
                                            "\\right]",
                                            ",",
                                            "1",
                                            "42",
                                            "x",
                                            "^",
                                            "_",
                                            "!",
                                            "%",
                                            "|",
                                            "\\begin{pmatrix}",
                                            "\\end{pmatrix}",
                                            "&",
                                            "\\\\",
                                            "\\pm",
                                            "\\cup",
                                            "\\infty",
                                            "/",
                                            "-",
                                            "+",
                                            ".",
                                            "\xE7\xAD\x94",
                                            "\xFF",
                                            std::string(1, '\0'),
                                            "\\overline{",
                                            "\\log_",
                                            "\\binom"};
  Json::Array rows = golden_rows("math_score/rows");
  std::vector<Rule> rules = all_rules();
  Rng rng(7, "test.hostile");
  const uint64_t rounds = soak ? 200'000 : 1'500;
  for (uint64_t round = 0; round < rounds; ++round) {
    std::string text = rows[rng.below(rows.size(), round, 0)].at("response").as_string().substr(0, 200);
    for (uint64_t i = 1; i < 12; ++i) {
      const std::string& piece = kPieces[rng.below(kPieces.size(), round, 3 * i)];
      text.insert(rng.below(text.size() + 1, round, 3 * i + 1), piece);
      if (rng.below(4, round, 3 * i + 2) == 0) text.erase(rng.below(text.size() + 1, round, 3 * i + 2), 3);
    }
    const std::string& gold = rows[rng.below(rows.size(), round, 99)].at("gold").as_string();
    for (const Rule& rule : rules) {
      Verdict verdict = rule.score(gold, {.text = text, .cut = round % 2 == 0});
      ASSERT_LE(verdict.span.begin, verdict.span.end) << rule.name() << " " << Json(repaired_utf8(text)).dump();
      ASSERT_LE(verdict.span.end, text.size()) << rule.name() << " " << Json(repaired_utf8(text)).dump();
      ASSERT_FALSE(verdict.reason.empty()) << rule.name();
    }
  }
}

// Columns of every name with values of every kind: a row is read, or refused by its place.
TEST(Hostile, RandomRowsAreReadOrRefusedByTheirPlace) {
  const std::vector<std::string> kColumns = {
      "id",       "ID",    "uid",    "problem", "prompt", "messages",   "answer",    "gold",         "gts",
      "solution", "input", "output", "doc",     "resps",  "filter",     "target",    "sample",       "tokens",
      "finish",   "step",  "text",   "ids",     "doc_id", "completion", "loss_mask", "reward_model", "conversations"};
  const std::vector<std::string> kValues = {
      "1",
      "-1",
      "1.5",
      "true",
      "null",
      "\"\"",
      "\"a\"",
      "\"\\u0000\"",
      "[]",
      "{}",
      "[[\"t\"]]",
      "[5]",
      "1e300",
      "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"t\"}]",
      "{\"ground_truth\":\"5\"}",
      "{\"question\":\"q\",\"answer\":5}",
      "\"\\ufffd\"",
      "9223372036854775807",
      "\"length\""};
  Rng rng(8, "test.hostile.rows");
  const uint64_t rounds = std::getenv("SF_SOAK") ? 1'000'000 : 20'000;
  size_t read = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    Json row = Json::object();
    for (uint64_t i = 0; i < 1 + round % 6; ++i)
      row.set(kColumns[rng.below(kColumns.size(), round, 2 * i)],
              Json::parse(kValues[rng.below(kValues.size(), round, 2 * i + 1)], "value"));
    std::set<std::string> unknown;
    for (bool question : {true, false}) try {
        question ? (void)question_of(row, 7, "f.jsonl", unknown) : (void)answers_of(row, 7, "f.jsonl", unknown);
        ++read;
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), Exit::kData) << row.dump();
        ASSERT_TRUE(std::string_view(error.what()).starts_with("f.jsonl:7: ")) << error.what() << "\n" << row.dump();
      }
  }
  EXPECT_GT(read, rounds / 50);
}

// The same of verdicts.
TEST(Hostile, RandomVerdictsAreReadOrRefusedByTheirLine) {
  const std::vector<std::string> kLines = {
      R"({"kind":"scores","v":1,"rule":"a","rule_version":1,"rule_digest":"d","questions_digest":"q","answers":1})",
      R"({"id":"1","sample":0,"outcome":"correct","reason":"r"})"};
  Rng rng(9, "test.hostile.verdicts");
  const uint64_t rounds = std::getenv("SF_SOAK") ? 1'000'000 : 20'000;
  for (uint64_t round = 0; round < rounds; ++round) {
    ScoresReader reader("v.jsonl");
    try {
      for (size_t i = 0; i < kLines.size(); ++i) {
        std::string line = kLines[i];
        for (uint64_t k = 0; k < 2; ++k)
          line[rng.below(line.size(), round, 4 * i + 2 * k)] =
              static_cast<char>(rng.below(256, round, 4 * i + 2 * k + 1));
        reader.take(line);
      }
      EXPECT_LE(reader.finish().answers.size(), 1u);
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Exit::kData || error.code() == Exit::kProtocol) << error.what();
      ASSERT_TRUE(std::string_view(error.what()).starts_with("v.jsonl")) << error.what();
    }
  }
}

}  // namespace
}  // namespace sf::score
