// SPDX-License-Identifier: Apache-2.0
#include "train/served.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "toy.h"

namespace sf::train {
namespace {

namespace fs = std::filesystem;

// A run of five steps, each with its checkpoint.
class ServedRecords : public testing::Test {
 protected:
  static fs::path run() {
    static const struct Run {
      fs::path path = fs::temp_directory_path() / ("sf-served-" + std::to_string(getpid()));
      Run() {
        test::ToyPlan plan{1, path};
        plan.checkpoint_every = 1;
        test::run_toy(plan);
      }
      ~Run() { fs::remove_all(path); }
    } made;
    return made.path;
  }
  void SetUp() override {
    fs::remove_all(run() / "acceptance");
    fs::remove(run() / "best");
  }
  static Served served(int64_t step, int64_t committed, int64_t verifications) {
    const fs::path dir = run() / ("step-" + std::to_string(step));
    return {.step = step,
            .checkpoint = ckpt::Checkpoint::open(dir).manifest().identity,
            .conditions = "c",
            .prompts = 3,
            .new_tokens = committed + 3,
            .committed = committed,
            .verifications = verifications,
            .tried = {verifications, 1},
            .accepted = {1, 0},
            .training = Json::object().set("training_acc", 0.5)};
  }
  static std::string best() { return fs::read_symlink(run() / "best").string(); }
};

TEST_F(ServedRecords, ARecordIsReadAsItWasWritten) {
  const Served wanted = served(2, 30, 20);
  write_served(run(), wanted);
  EXPECT_EQ(read_served(run(), 2, "c"), wanted);
  EXPECT_EQ(wanted.to_json().at("acceptance_length").as_double(), 1.5);
}

TEST_F(ServedRecords, BestIsTheOldestOfEqualOnes) {
  write_served(run(), served(1, 15, 10));
  EXPECT_EQ(name_best_served(run(), "c")->step, 1);
  write_served(run(), served(2, 30, 20));
  EXPECT_EQ(name_best_served(run(), "c")->step, 1);
  EXPECT_EQ(best(), "step-1");
}

TEST_F(ServedRecords, BestMovesForTheLeastThatIsBetterAndNotBack) {
  write_served(run(), served(1, 1999999, 1000000));
  name_best_served(run(), "c");
  write_served(run(), served(3, 2000000, 1000000));
  EXPECT_EQ(name_best_served(run(), "c")->step, 3);
  EXPECT_EQ(best(), "step-3");
  write_served(run(), served(4, 19, 10));
  EXPECT_EQ(name_best_served(run(), "c")->step, 3);
  EXPECT_EQ(best(), "step-3");
}

TEST_F(ServedRecords, ARecordOfAnotherCheckpointOrOfOtherConditionsDoesNotCount) {
  Served other = served(2, 30, 10);
  other.checkpoint = served(1, 1, 1).checkpoint;
  write_served(run(), other);
  EXPECT_EQ(read_served(run(), 2, "c"), std::nullopt);
  write_served(run(), served(2, 30, 10));
  EXPECT_EQ(read_served(run(), 2, "d"), std::nullopt);
  EXPECT_EQ(name_best_served(run(), "d"), std::nullopt);
  EXPECT_FALSE(fs::is_symlink(run() / "best"));
}

TEST_F(ServedRecords, RecordsOfLaterStepsGoWhereARunWasGoneBackOn) {
  write_served(run(), served(5, 50, 10));
  name_best_served(run(), "c");
  write_served(run(), served(3, 15, 10));
  EXPECT_EQ(name_best_served(run(), "c")->step, 3);
  EXPECT_EQ(best(), "step-3");
}

TEST_F(ServedRecords, ARecordThatIsNoneIsRefusedNamingTheFile) {
  write_served(run(), served(2, 30, 20));
  write_atomic(run() / "acceptance/step-2.json", R"({"step": 2, "checkpoint": "", "conditions": "", "prompts": -1})");
  try {
    read_served(run(), 2, "c");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
    EXPECT_NE(std::string(error.what()).find("step-2.json"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sf::train
