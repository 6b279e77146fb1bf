// SPDX-License-Identifier: Apache-2.0
#include "tool/answer_rows.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "base/error.h"
#include "base/hash.h"
#include "tool/exam_files.h"

namespace sf::tool {
namespace {

Json row(const std::string& id) {
  return Json::object().set("id", id).set("sample", int64_t{0});
}

const Json kJob = Json::object().set("temperature", 0.5).set("questions", "q");
// The first line of rows that `job` began.
std::string begun(const Json& job) {
  return Json::object().set("job", sha256_hex(job.dump())).set("facts", job).dump() + "\n";
}
// A row as a file of them keeps it.
std::string kept(const Json& row) {
  return Json::object().set("xxh3", hex64(xxh3_64(row.dump()))).set("row", row).dump() + "\n";
}
std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class Rows : public ::testing::Test {
 protected:
  Rows() { std::filesystem::create_directory(dir_); }
  ~Rows() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_ = std::filesystem::temp_directory_path() / ("sf-rows-" + std::to_string(getpid()));
  std::filesystem::path file_ = dir_ / "answers.jsonl";
  std::filesystem::path beside(const std::string& end) { return file_.string() + end; }
};

TEST_F(Rows, ArePublishedInOrderWhateverRankWroteThem) {
  AnswerRows first(file_, kJob, "me");
  AnswerRows second(file_, kJob, 1), third(file_, kJob, 2);
  third.add(row("a"));
  second.add(row("c"));
  first.add(row("b"));
  first.take_in();
  first.publish({"a/0", "b/0", "c/0"}, Json());
  EXPECT_EQ(read_file(file_),
            "{\"id\":\"a\",\"sample\":0}\n{\"id\":\"b\",\"sample\":0}\n{\"id\":\"c\",\"sample\":0}\n");
  for (const char* end : {".partial", ".partial.1", ".partial.2"}) EXPECT_FALSE(std::filesystem::exists(beside(end)));
}

TEST_F(Rows, OfRanksThatWereKilledAreFoundByTheNextRun) {
  write_atomic(beside(".partial"), begun(kJob));
  write_atomic(beside(".partial.12"), begun(kJob) + kept(row("a")) + "{\"xxh3\":\"to");
  write_atomic(beside(".partial.old"), "somebody else's");
  AnswerRows rows(file_, kJob, "me");
  EXPECT_TRUE(rows.has("a/0"));
  EXPECT_EQ(rows.size(), 1u);
  EXPECT_TRUE(AnswerRows(file_, kJob, 1).has("a/0")) << "the other ranks see what the first found";
  EXPECT_FALSE(std::filesystem::exists(beside(".partial.12")));
  EXPECT_TRUE(std::filesystem::exists(beside(".partial.old")));
}

TEST_F(Rows, OfAnotherJobAreRefusedAndLeftAlone) {
  const std::string theirs = begun(Json::object().set("temperature", 0.7).set("questions", "q")) + kept(row("a"));
  write_atomic(beside(".partial.1"), theirs);
  const std::string wanted = ".partial.1 was begun with other settings: generate.temperature was 0.7, is 0.5; go on";
  EXPECT_NE(refusal([&] { AnswerRows(file_, kJob, "me"); }).find(wanted), std::string::npos);
  EXPECT_NE(refusal([&] { check_answers_output(file_, kJob); }).find(wanted), std::string::npos);
  EXPECT_EQ(read_file(beside(".partial.1")), theirs);
  EXPECT_FALSE(std::filesystem::exists(beside(".partial")));
}

TEST_F(Rows, ThatThisRunDoesNotAskForAreNotThrownAway) {
  {
    AnswerRows rows(file_, kJob, "me");
    rows.add(row("a"));
    rows.add(row("b"));
  }
  AnswerRows rows(file_, kJob, "me");
  rows.require_only({"c/0", "b/0", "a/0"});
  EXPECT_NE(refusal([&] { rows.require_only({"a/0"}); }).find("holds an answer to b/0"), std::string::npos);
  const std::vector<std::string> all{"a/0", "b/0"}, fewer{"a/0"};
  EXPECT_EQ(refusal([&] { check_answers_output(file_, kJob, &all); }), "");
  EXPECT_NE(refusal([&] { check_answers_output(file_, kJob, &fewer); }).find("holds an answer to b/0"),
            std::string::npos);
}

TEST_F(Rows, ADigitThatChangedIsRefusedNamingTheRow) {
  Json answer = row("a");
  answer.set("ids", Json::array());
  for (int64_t id : {17, 4, 9}) answer.as_object().back().second.push(id);
  std::string text = begun(kJob) + kept(row("b")) + kept(answer);
  {
    write_atomic(beside(".partial"), text);
    AnswerRows rows(file_, kJob, "me");
    EXPECT_EQ(rows.size(), 2u);
  }
  text.replace(text.find("17,4"), 2, "18");
  write_atomic(beside(".partial"), text);
  for (const auto& look :
       std::vector<std::function<void()>>{[&] { AnswerRows(file_, kJob, "me"); }, [&] { AnswerRows(file_, kJob, 1); },
                                          [&] { check_answers_begun(file_, kJob); }})
    EXPECT_NE(refusal(look).find(".partial:3: row a/0 is not what was written"), std::string::npos) << refusal(look);
}

TEST_F(Rows, ALineThatIsNoneIsNamedByItsNumber) {
  write_atomic(beside(".partial"), begun(kJob) + kept(row("a")) + "rubbish\n" + kept(row("b")));
  EXPECT_NE(refusal([&] { AnswerRows(file_, kJob, "me"); }).find(".partial:3:"), std::string::npos);
  write_atomic(beside(".partial"), begun(kJob) + row("a").dump() + "\n");
  EXPECT_NE(refusal([&] { AnswerRows(file_, kJob, "me"); }).find(".partial:2: neither a row with its hash"),
            std::string::npos);
  EXPECT_NE(refusal([&] { check_answers_output(file_, kJob); }).find(".partial:2:"), std::string::npos);
}

TEST_F(Rows, VerdictsThatAreCutDoNotCountAsDone) {
  const ExamFiles files{.whole = dir_ / "v.jsonl", .verdicts = dir_ / "v.jsonl", .answers = file_};
  const std::string header =
      R"({"kind":"scores","v":1,"rule":"exact","rule_version":1,"rule_digest":"d","questions_digest":"q","answers":1})";
  const std::string line = R"({"id":"a","sample":0,"outcome":"correct","reason":"equal"})";
  EXPECT_FALSE(files.found());
  EXPECT_TRUE(files.damage().empty());
  for (const std::string& torn :
       {std::string(), header + "\n", header + "\n" + line.substr(0, 20), header + "\nrubbish\n"}) {
    write_atomic(files.whole, torn);
    EXPECT_FALSE(files.found()) << torn;
    ASSERT_EQ(files.damage().size(), 1u);
    EXPECT_NE(files.damage()[0].find("v.jsonl"), std::string::npos);
  }
  write_atomic(files.whole, header + "\n" + line + "\n");
  EXPECT_EQ(files.found(), files.whole);
}

}  // namespace
}  // namespace sf::tool
