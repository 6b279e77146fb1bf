// SPDX-License-Identifier: Apache-2.0
#include "tool/answer_rows.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"

namespace sf::tool {
namespace {

Json row(const std::string& id) {
  return Json::object().set("id", id).set("sample", int64_t{0});
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
  AnswerRows first(file_, "job", "me");
  AnswerRows second(file_, "job", 1), third(file_, "job", 2);
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
  write_atomic(beside(".partial"), "{\"job\":\"job\"}\n");
  write_atomic(beside(".partial.12"), "{\"job\":\"job\"}\n" + row("a").dump() + "\n{\"id\":\"to");
  write_atomic(beside(".partial.old"), "somebody else's");
  AnswerRows rows(file_, "job", "me");
  EXPECT_TRUE(rows.has("a/0"));
  EXPECT_EQ(rows.size(), 1u);
  EXPECT_TRUE(AnswerRows(file_, "job", 1).has("a/0")) << "the other ranks see what the first found";
  EXPECT_FALSE(std::filesystem::exists(beside(".partial.12")));
  EXPECT_TRUE(std::filesystem::exists(beside(".partial.old")));
}

TEST_F(Rows, OfAnotherJobAreRefusedAndLeftAlone) {
  const std::string theirs = "{\"job\":\"other\"}\n" + row("a").dump() + "\n";
  write_atomic(beside(".partial.1"), theirs);
  EXPECT_THROW(AnswerRows(file_, "job", "me"), Error);
  EXPECT_EQ(read_file(beside(".partial.1")), theirs);
  EXPECT_FALSE(std::filesystem::exists(beside(".partial")));
}

}  // namespace
}  // namespace sf::tool
