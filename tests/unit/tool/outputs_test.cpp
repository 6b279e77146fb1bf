// SPDX-License-Identifier: Apache-2.0
#include "tool/outputs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "../ckpt/scratch.h"
#include "base/error.h"
#include "base/file.h"

namespace sf::tool {
namespace {

bool refused(const std::filesystem::path& file, void (*refuse)(const std::filesystem::path&) = refuse_all_but_reasons) {
  try {
    refuse(file);
    return false;
  } catch (const Error& error) {
    return error.code() == Exit::kCantCreate;
  }
}

TEST(Rejected, AFileThatHoldsAnythingElseIsNotReplaced) {
  std::filesystem::path file = std::filesystem::temp_directory_path() / ("sf-rejected-" + std::to_string(getpid()));
  EXPECT_FALSE(refused(file));
  write_atomic(file, "{\"row\":3,\"id\":\"c3\",\"reason\":\"no message\"}\n");
  EXPECT_FALSE(refused(file));
  for (const char* other : {"my notes\n", "{\"id\":\"c3\",\"messages\":[]}\n", "[1]\n"}) {
    write_atomic(file, other);
    EXPECT_TRUE(refused(file)) << other;
  }
  EXPECT_TRUE(refused(file, refuse_all_but_handle));
  std::filesystem::remove(file);
}

TEST(Outputs, ThatExistOrWouldLieInsideWhatWasPublishedAreRefused) {
  ckpt::Scratch scratch;
  EXPECT_FALSE(refused(scratch / "new", refuse_existing));
  EXPECT_FALSE(refused(scratch / "new/deep/", refuse_existing));
  EXPECT_TRUE(refused(scratch / ".", refuse_existing));
  for (const char* mark : {"manifest.json", "contract.json"}) {
    std::filesystem::path dir = scratch / (std::string("of-") + mark);
    std::filesystem::create_directory(dir);
    write_atomic(dir / mark, "{}");
    EXPECT_TRUE(refused(dir / "new", refuse_existing));
    EXPECT_TRUE(refused(dir / "sub/new/", refuse_existing));
    EXPECT_TRUE(refused(dir / "new.jsonl"));
  }
}

}  // namespace
}  // namespace sf::tool
