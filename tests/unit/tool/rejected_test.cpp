// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "tool/chats.h"

namespace sf::tool {
namespace {

bool refused(const std::filesystem::path& file) {
  try {
    refuse_foreign(file);
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
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace sf::tool
