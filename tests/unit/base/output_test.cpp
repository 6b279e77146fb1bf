// SPDX-License-Identifier: Apache-2.0
// What an output may do to what is there, and what is shown of names that came from outside.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/new_dirs.h"
#include "base/present.h"
#include "base/utf8.h"

namespace sf {
namespace {
namespace fs = std::filesystem;

Exit code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  return Exit::kOk;
}

class Output : public testing::Test {
 protected:
  Output() : dir_(fs::temp_directory_path() / ("sf-output-" + std::to_string(getpid()))) {
    fs::remove_all(dir_);
    fs::create_directory(dir_);
  }
  ~Output() override { fs::remove_all(dir_); }
  const fs::path dir_;
};

TEST_F(Output, ALinkIsFollowedToWhereItLeads) {
  write_atomic(dir_ / "real", "old");
  fs::create_symlink("real", dir_ / "link");
  fs::create_symlink("link", dir_ / "second");
  fs::create_symlink("not yet", dir_ / "third");
  write_atomic(dir_ / "second", "new");
  write_atomic(dir_ / "third", "made");
  EXPECT_TRUE(fs::is_symlink(dir_ / "link") && fs::is_symlink(dir_ / "second") && fs::is_symlink(dir_ / "third"));
  EXPECT_EQ(read_file(dir_ / "real"), "new");
  EXPECT_EQ(read_file(dir_ / "not yet"), "made");
}

TEST_F(Output, ALoopOfLinksIsRefused) {
  fs::create_symlink("b", dir_ / "a");
  fs::create_symlink("a", dir_ / "b");
  EXPECT_EQ(code_of([&] { write_atomic(dir_ / "a", "x"); }), Exit::kCantCreate);
  EXPECT_TRUE(is_present(dir_ / "a"));
  EXPECT_EQ(code_of([&] { read_file(dir_ / "a"); }), Exit::kNoInput);
}

TEST_F(Output, AFifoGetsTheBytesAndStays) {
  ASSERT_EQ(mkfifo((dir_ / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(code_of([&] { write_atomic(dir_ / "fifo", "x"); }), Exit::kCantCreate) << "nobody reads";
  UniqueFd both(open((dir_ / "fifo").c_str(), O_RDWR | O_CLOEXEC));
  write_atomic(dir_ / "fifo", "abc");
  char got[3];
  EXPECT_EQ(read(both.get(), got, 3), 3);
  EXPECT_EQ(std::string(got, 3), "abc");
  EXPECT_TRUE(fs::is_fifo(dir_ / "fifo"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(Output, AFifoInPlaceOfAFileIsNotWaitedFor) {
  ASSERT_EQ(mkfifo((dir_ / "config.json").c_str(), 0600), 0);
  EXPECT_EQ(code_of([&] { read_file(dir_ / "config.json"); }), Exit::kNoInput);
}

TEST_F(Output, AnOpenPipeIsReadByItsDescriptor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  UniqueFd reader(ends[0]), writer(ends[1]);
  write_all(writer.get(), "rows", "pipe");
  writer.close("pipe");
  EXPECT_EQ(read_file("/dev/fd/" + std::to_string(reader.get())), "rows");
}

TEST_F(Output, NewDirectoriesGoAgainWhileTheyAreEmpty) {
  { NewDirs dirs(dir_ / "a/b/c"); }
  EXPECT_FALSE(fs::exists(dir_ / "a"));
  {
    NewDirs dirs(dir_ / "a/b/c");
    write_atomic(dir_ / "a/kept", "x");
  }
  EXPECT_TRUE(fs::exists(dir_ / "a/kept"));
  EXPECT_FALSE(fs::exists(dir_ / "a/b"));
}

TEST_F(Output, TheWayBackThroughAMissingDirectoryMakesNothing) {
  EXPECT_EQ(code_of([&] { NewDirs dirs(dir_ / "a/../b"); }), Exit::kCantCreate);
  EXPECT_TRUE(fs::is_empty(dir_));
  EXPECT_EQ(code_of([&] { NewDirs dirs(dir_ / "."); }), Exit::kOk);
  EXPECT_TRUE(fs::exists(dir_));
}

TEST(Errno, ARefusedOutputIsOneStatusWhateverTheReason) {
  for (int number : {EACCES, EPERM, EROFS, ENOENT, ENOTDIR, EISDIR})
    EXPECT_EQ(exit_of_errno(number, Exit::kCantCreate), Exit::kCantCreate);
  EXPECT_EQ(exit_of_errno(ENOSPC, Exit::kCantCreate), Exit::kIo);
  EXPECT_EQ(exit_of_errno(EACCES, Exit::kNoInput), Exit::kNoPermission);
}

TEST(Utf8, LengthsFollowTheRfc) {
  EXPECT_EQ(utf8_length("a", 0), 1u);
  EXPECT_EQ(utf8_length("", 0), 0u);
  EXPECT_EQ(utf8_length("\xc3\xa9", 0), 2u);
  EXPECT_EQ(utf8_length("\xe2\x82\xac", 0), 3u);
  EXPECT_EQ(utf8_length("\xf0\x9f\x98\x80", 0), 4u);
  for (std::string_view wrong :
       {"\x80", "\xc0\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5", "\xc3"})
    EXPECT_EQ(utf8_length(wrong, 0), 0u);
}

TEST(Utf8, ControlCharactersAndOddBytesAreShown) {
  EXPECT_EQ(printable("a\n\x1b[0m\xff\xc2\x9b\x7f\xc3\xa9"), "a\\n\\x1b[0m\\xff\\xc2\\x9b\\x7f\xc3\xa9");
  EXPECT_EQ(printable("a\n\tb\r", true), "a\n\tb\\r");
}

TEST(Json, BytesThatAreNoUtf8BecomeTheReplacementCharacter) {
  EXPECT_EQ(Json("a\xff\xc3\xa9\xed\xa0\x80").dump(), "\"a\xEF\xBF\xBD\xc3\xa9\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace sf
