// SPDX-License-Identifier: Apache-2.0
// Rows of questions and answers, the book of questions, the file of verdicts.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "score/book.h"
#include "score/scores.h"
#include "score/strings.h"

namespace sf::score {
namespace {

std::set<std::string> unknown;

Question question(const std::string& json) {
  return question_of(Json::parse(json, "row"), 7, "q.jsonl", unknown);
}
std::vector<AnswerRow> answers(const std::string& json) {
  return answers_of(Json::parse(json, "row"), 7, "a.jsonl", unknown);
}
std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Questions, AreReadUnderTheColumnNamesOfThePublicSets) {
  EXPECT_EQ(question(R"({"id":3,"problem":"p","answer":"025","url":"u"})").gold, "025");
  EXPECT_EQ(question(R"({"ID":"2024-I-1","Problem":"p","Answer":204})").id, "2024-I-1");
  EXPECT_EQ(question(R"({"ID":"2024-I-1","Problem":"p","Answer":204})").gold, "204");
  EXPECT_EQ(question(R"({"question":"q","answer":"7"})").id, "7");  // the line's number
  EXPECT_EQ(question(R"({"problem_idx":12,"problem":"p","answer":5})").id, "12");
  EXPECT_EQ(question(R"({"id":"a","problem":"p","solution":"so \\boxed{33}."})").gold, "33");
  Question chat = question(R"({"prompt":[{"role":"user","content":"How?"}],"reward_model":{"ground_truth":"34"}})");
  EXPECT_EQ(chat.gold, "34");
  EXPECT_EQ(chat.text, "How?");
}

TEST(Questions, ColumnsWithoutMeaningAreNamed) {
  unknown.clear();
  question(R"({"id":1,"problem":"p","answer":"1","url":"u","difficulty":3})");
  EXPECT_EQ(unknown, std::set<std::string>{"difficulty"});
}

TEST(Questions, WithoutAGoldAreRefusedByLine) {
  EXPECT_NE(refusal([] { question(R"({"id":"x","problem":"p"})"); }).find("q.jsonl:7: question x has no gold"),
            std::string::npos);
}

TEST(Answers, AreReadFromPlainRowsChatsAndTheFilesOfOthers) {
  AnswerRow plain = answers(R"({"id":"a","sample":3,"completion":"t","finish":"length","tokens":9})")[0];
  EXPECT_EQ(plain.sample, 3);
  EXPECT_TRUE(plain.cut);
  EXPECT_EQ(plain.tokens, 9);
  EXPECT_FALSE(plain.question);
  EXPECT_EQ(answers(R"({"id":"a","finish":"stop","answer":"It is 5."})")[0].text, "It is 5.");
  AnswerRow chat = answers(R"({"id":"a","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"t"}],
                               "loss_mask":[0,0,1,1,1]})")[0];
  EXPECT_EQ(chat.text, "t");
  EXPECT_EQ(chat.tokens, 3);
  auto harness = answers(R"({"doc_id":4,"doc":{"Question":"q","Answer":"8"},"target":"8","resps":[["x","y"]],
                             "filtered_resps":["x"],"filter":"none"})");
  ASSERT_EQ(harness.size(), 2u);
  EXPECT_EQ(harness[1].id, "4");
  EXPECT_EQ(harness[1].text, "y");
  EXPECT_EQ(harness[1].question->gold, "8");
  AnswerRow verl = answers(R"({"input":"<|user|>q<think>\n","output":"o","gts":"8","score":1.0,"step":140})")[0];
  EXPECT_EQ(verl.step, 140);
  EXPECT_TRUE(verl.opened_thinking);
  EXPECT_EQ(verl.question->gold, "8");
  EXPECT_EQ(verl.id, answers(R"({"input":"<|user|>q<think>\n","output":"p","gts":"8"})")[0].id);
}

TEST(Answers, WithoutATextAreRefusedByLine) {
  EXPECT_NE(refusal([] { answers(R"({"id":"x","finish":"stop"})"); }).find("a.jsonl:7: answer to x has no text"),
            std::string::npos);
}

TEST(Answers, IdsAreTextsOrWholeNumbersAndSamplesWholeNumbers) {
  for (const char* bad : {"1.5", "true", "[1]", "{}", "\"\""})
    EXPECT_NE(refusal([&] {
                answers(std::string(R"({"completion":"t","id":)") + bad + "}");
              }).find("a.jsonl:7: the id (id) is"),
              std::string::npos)
        << bad;
  for (const char* bad : {"-1", "1.5", "\"0\"", "true", "2147483648"})
    EXPECT_NE(refusal([&] {
                answers(std::string(R"({"completion":"t","id":1,"sample":)") + bad + "}");
              }).find("a.jsonl:7: sample is"),
              std::string::npos)
        << bad;
}

TEST(Questions, ColumnsThatContradictAreRefusedNamingBoth) {
  for (const auto& [row, wanted] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"id":1,"problem":"p","answer":"5","gold":"6"})", "q.jsonl:7: gold is \"6\", but answer is \"5\""},
           {R"({"id":1,"problem":"p","answer":5,"reward_model":{"ground_truth":"6"}})", "reward_model.ground_truth is"},
           {R"({"id":1,"ID":2,"problem":"p","answer":"5"})", "id is 1, but ID is 2"},
           {R"({"id":1,"problem":"Find x+y","question":"Find x-y","answer":"5"})", "but question is"}})
    EXPECT_NE(refusal([&] { question(row); }).find(wanted), std::string::npos) << refusal([&] { question(row); });
  EXPECT_EQ(question(R"({"id":1,"problem":"p","answer":"025","final_answer":25})").gold, "025");
  EXPECT_EQ(question(R"({"id":1,"problem":"Find x.","prompt":"Think. Find $x$.","answer":"5"})").text, "Find x.");
  for (const char* row :
       {R"({"id":1,"completion":"a","response":"b"})", R"({"id":1,"completion":"a","sample":1,"sample_id":2})",
        R"({"id":1,"completion":"a","finish":"stop","finish_reason":"length"})"})
    EXPECT_NE(refusal([&] { answers(row); }).find("keep one of the columns"), std::string::npos) << row;
}

TEST(Questions, ColumnsOfAnOddKindAreRefusedByName) {
  for (const auto& [row, wanted] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"id":1,"problem":"p","answer":[1,2]})", "q.jsonl:7: answer is [1,2]; wanted a text or a number"},
           {R"({"id":1,"problem":"p","answer":true})", "answer is true; wanted"},
           {R"({"id":1,"problem":5,"answer":"1"})", "problem is 5; wanted a text or a list of messages"},
           {R"({"id":"a\ufffd","problem":"p","answer":"1"})", "holds bytes that are no UTF-8"}})
    EXPECT_NE(refusal([&] { question(row); }).find(wanted), std::string::npos) << refusal([&] { question(row); });
  for (const char* row : {R"({"id":1,"completion":42})", R"({"id":1,"completion":["a","b"]})",
                          R"({"id":1,"completion":"a","tokens":"9"})", R"({"id":1,"completion":"a","finish":1})",
                          R"({"id":1,"completion":"a","step":1.5})"})
    EXPECT_NE(refusal([&] { answers(row); }).find("; wanted"), std::string::npos) << row;
  EXPECT_EQ(question(R"({"id":1,"conversations":[{"from":"human","value":"How?"}],"answer":"1"})").text, "How?");
}

TEST(Book, TwoTextsForOneIdAreRefusedNamingBothLines) {
  QuestionBook book;
  book.add({.id = "1", .text = "Find x + y.", .gold = "25", .origin = "q.jsonl:1"});
  book.add({.id = "1", .text = "find $x+y$", .gold = "25", .origin = "q.jsonl:2"});
  EXPECT_EQ(book.copies(), 1u);
  EXPECT_NE(refusal([&] {
              book.add({.id = "1", .text = "Find x - y.", .gold = "25", .origin = "q.jsonl:3"});
            }).find("q.jsonl:1 and q.jsonl:3: question 1 has two texts"),
            std::string::npos);
}

TEST(Book, DigestsSeeTextsAndAnswersAreMadeForTextsAlone) {
  auto of = [](const char* text, const char* gold) {
    QuestionBook book;
    book.add({.id = "1", .text = text, .gold = gold});
    return book;
  };
  EXPECT_NE(of("Find x.", "5").digest(), of("Find y.", "5").digest());
  EXPECT_EQ(of("Find x.", "5").digest(), of("find $x$", "5").digest());
  EXPECT_NE(of("Find x.", "5").digest(), of("Find x.", "6").digest());
  EXPECT_EQ(of("Find x.", "5").asked_digest(), of("Find x.", "").asked_digest());
  EXPECT_NE(of("Find x.", "5").asked_digest(), of("Find y.", "5").asked_digest());
}

TEST(Book, TwoGoldsForOneIdAreRefused) {
  QuestionBook book;
  book.add({"1", "text", "25"});
  EXPECT_EQ(book.add({"1", "text", "025"}), 0u);
  EXPECT_EQ(refusal([&] { book.add({"1", "text", "26"}); }), "question 1 has two golds: 25 and 26");
}

TEST(Book, CopiesByNormalTextAreMergedAndContradictionsSaid) {
  QuestionBook book;
  book.add({"1", "Find $x + y$, now.", "25"});
  EXPECT_EQ(book.add({"2", "find \\(x+y\\) now", "25"}), 0u);
  EXPECT_EQ(book.find("2"), 0u);
  EXPECT_EQ(book.copies(), 1u);
  book.add({"3", "Find x+y now", "26"});
  ASSERT_EQ(book.warnings().size(), 1u);
  EXPECT_EQ(book.warnings()[0], "questions 1 and 3 have the same text, but golds 25 and 26");
}

TEST(Book, KnownDefectsOfPublishedCopiesAreSaid) {
  Question known{"I-12", "Find the number of intersections of the graphs of ...", "384"};
  EXPECT_NE(known_defect(known).find("the gold is 385"), std::string::npos);
  known.gold = "385";
  EXPECT_EQ(known_defect(known), "");
  EXPECT_NE(known_defect({"5", "angles", "336^\\circ"}), "");
}

TEST(Utf8, BytesThatAreNoCharacterBecomeReplacements) {
  EXPECT_TRUE(valid_utf8("\xE7\xAD\x94 ok"));
  EXPECT_FALSE(valid_utf8("\xE7\xAD"));
  EXPECT_FALSE(valid_utf8("\xED\xA0\x80"));  // a surrogate
  EXPECT_FALSE(valid_utf8("\xC0\xAF"));      // not the shortest form
  EXPECT_EQ(repaired_utf8("a\xFFz\xE7\xAD\x94"), "a\xEF\xBF\xBDz\xE7\xAD\x94");
  EXPECT_EQ(last_characters("\xE7\xAD\x94\xE7\xAD\x94q", 2), "\xE7\xAD\x94q");
  EXPECT_EQ(count_characters("\xE7\xAD\x94q\xFF"), 3u);
}

Scores read(std::initializer_list<std::string> lines) {
  ScoresReader reader("s.jsonl");
  for (const std::string& line : lines) reader.take(line);
  return reader.finish();
}
std::string header(int answers, const std::string& digest = "d") {
  return R"({"kind":"scores","v":1,"rule":"aime-v1","rule_version":1,"rule_digest":")" + digest +
         R"(","questions_digest":"q","answers":)" + std::to_string(answers) + "}";
}

TEST(ScoresFile, ReadsBackWhatWasWritten) {
  ScoredAnswer answer{.question = 0, .sample = 2, .tokens = 5, .outcome = Outcome::kWrong, .cut = true, .normal = "7"};
  Scores scores = read({header(1), line_of(answer, "a\"b", {3, 4}, "differs")});
  ASSERT_EQ(scores.answers.size(), 1u);
  EXPECT_EQ(scores.ids, std::vector<std::string>{"a\"b"});
  EXPECT_EQ(scores.answers[0].sample, 2);
  EXPECT_EQ(scores.answers[0].tokens, 5);
  EXPECT_EQ(scores.answers[0].outcome, Outcome::kWrong);
  EXPECT_TRUE(scores.answers[0].cut);
  EXPECT_EQ(scores.answers[0].normal, "7");
}

TEST(ScoresFile, OneAnswerTwiceIsRefused) {
  std::string row = R"({"id":"1","sample":0,"outcome":"wrong","reason":"differs"})";
  EXPECT_EQ(refusal([&] { read({header(2), row, row}); }), "s.jsonl:3: sample 0 of question 1 is in line 2 already");
}

TEST(ScoresFile, CutAtALineEndIsRefused) {
  std::string row = R"({"id":"1","sample":0,"outcome":"wrong","reason":"differs"})";
  EXPECT_NE(refusal([&] {
              read({header(2), row});
            }).find("s.jsonl: 1 of the 2 verdicts that its header promises"),
            std::string::npos);
}

TEST(ScoresFile, WhatIsNoneIsRefused) {
  EXPECT_NE(refusal([] { read({R"({"id":"1"})"}); }).find("no verdicts of sf-eval score"), std::string::npos);
  EXPECT_NE(refusal([] {
              read({header(1), R"({"id":"1","sample":0,"outcome":"good"})"});
            }).find("no outcome good"),
            std::string::npos);
}

TEST(ScoresFile, HeadersOfAnOddKindAreRefusedByName) {
  const std::string good = header(0);
  for (const auto& [field, wanted] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("step":"ten")", "s.jsonl:1: the header's step is \"ten\"; wanted a whole number from 0"},
           {R"("step":-1)", "step is -1"},
           {R"("again":1)", "again is 1"},
           {R"("label":5)", "label is 5"},
           {R"("facts":[])", "facts is []"},
           {R"("questions":"30")", "questions is"}})
    EXPECT_NE(refusal([&] { read({good.substr(0, good.size() - 1) + "," + field + "}"}); }).find(wanted),
              std::string::npos)
        << field;
  EXPECT_NE(refusal([] {
              read({header(1), R"({"id":"1","outcome":"wrong"})"});
            }).find("s.jsonl:2: key \"sample\""),
            std::string::npos);
}

TEST(ScoresFile, DifferentRulesAreNotCompared) {
  std::string row = R"({"id":"1","sample":0,"outcome":"wrong","reason":"differs"})";
  std::string found = refusal([&] { require_comparable(read({header(1), row}), read({header(1, "e"), row})); });
  EXPECT_NE(found.find("rule_digest is \"d\" and \"e\""), std::string::npos) << found;
  EXPECT_EQ(refusal([&] { require_comparable(read({header(1), row}), read({header(1), row})); }), "");
}

TEST(Summaries, CountEveryOutcomeAndEstimateByQuestion) {
  auto row = [](const char* id, int sample, const char* outcome, const char* normal) {
    return std::string(R"({"id":")") + id + R"(","sample":)" + std::to_string(sample) + R"(,"outcome":")" + outcome +
           R"(","normal":")" + normal + R"(","tokens":10})";
  };
  Summary summary = summarise(read({header(4), row("1", 0, "correct", "4"), row("1", 1, "wrong", "5"),
                                    row("2", 0, "correct", "6"), row("2", 1, "truncated", "")}));
  EXPECT_EQ(summary.questions, 2);
  EXPECT_EQ(summary.answers, 4);
  EXPECT_DOUBLE_EQ(summary.rate, 0.5);
  EXPECT_EQ(summary.count(Outcome::kTruncated), 1);
  EXPECT_DOUBLE_EQ(summary.majority, 0.75);  // a tie, and one vote of two
  ASSERT_EQ(summary.pass_at.size(), 1u);
  EXPECT_DOUBLE_EQ(summary.pass_at[0].second, 1);
  EXPECT_EQ(summary.tokens, 40);
}

TEST(Summaries, MajoritiesOfFewerAnswersAreMeansOverQuestions) {
  auto row = [](const char* id, int sample, bool right, const char* normal) {
    return fmt::format(R"({{"id":"{}","sample":{},"outcome":"{}","normal":"{}"}})", id, sample,
                       right ? "correct" : "wrong", normal);
  };
  const Scores scores = read({header(8), row("1", 0, true, "a"), row("1", 1, false, "b"), row("1", 2, false, "b"),
                              row("1", 3, false, "c"), row("2", 0, true, "a"), row("2", 1, true, "a"),
                              row("2", 2, true, "a"), row("2", 3, true, "a")});
  const Majorities found = majorities_of(scores, summarise(scores));
  ASSERT_EQ(found.at.size(), 1u);
  EXPECT_EQ(found.at[0].first, 2);
  EXPECT_DOUBLE_EQ(found.at[0].second, (0.25 + 1) / 2);
  EXPECT_EQ(found.draws, 5000);
}

}  // namespace
}  // namespace sf::score
