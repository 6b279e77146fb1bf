// SPDX-License-Identifier: Apache-2.0
#include "report/metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace sf::report {
namespace {

class Metrics : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sf-metrics-XXXXXX";
    dir_ = mkdtemp(name);
    file_ = dir_ / "metrics.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  MetricsWriter open(int64_t resumed) {
    MetricsWriter writer = MetricsWriter::open(file_, resumed);
    writer.clock = [] { return 1000.5; };
    return writer;
  }
  void append(std::string_view text) {
    std::string all = std::filesystem::exists(file_) ? read_file(file_) : "";
    write_atomic(file_, all + std::string(text));
  }
  std::filesystem::path dir_, file_;
};

TEST_F(Metrics, AStepIsOneLineWithTheCommonFieldsFirst) {
  MetricsWriter writer = open(0);
  writer.scalar(1, "loss", 2.5);
  writer.scalar(1, "lr", 0.001);
  writer.scalar(1, "loss", 2.25);
  writer.flush(1);
  EXPECT_EQ(read_file(file_),
            "{\"v\":1,\"event\":\"step\",\"t\":1000.5,\"rank\":0,\"step\":1,\"loss\":2.25,\"lr\":0.001}\n");
}

TEST_F(Metrics, NothingIsWrittenBeforeFlush) {
  MetricsWriter writer = open(0);
  writer.scalar(1, "loss", 2.5);
  EXPECT_EQ(read_file(file_), "");
  writer.flush(2);
  EXPECT_EQ(read_file(file_), "");
}

TEST_F(Metrics, WhatIsNotFiniteIsNull) {
  MetricsWriter writer = open(0);
  writer.scalar(1, "loss", NAN);
  writer.flush(1);
  EXPECT_TRUE(read_metrics(file_)[0].fields.at("loss").is_null());
}

TEST_F(Metrics, AResumedRunDropsTheRecordsOfLaterSteps) {
  {
    MetricsWriter writer = open(0);
    writer.event("run", 0, Json::object().set("seed", 1));
    for (int step = 1; step <= 5; ++step) {
      writer.scalar(step, "loss", step);
      writer.flush(step);
    }
  }
  MetricsWriter writer = open(3);
  writer.event("run", 3, Json::object().set("seed", 1));
  writer.scalar(4, "loss", 40);
  writer.flush(4);
  std::vector<int64_t> steps;
  for (const Record& record : read_metrics(file_)) steps.push_back(record.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 1, 2, 3, 3, 4}));
}

TEST_F(Metrics, AHalfWrittenLastLineIsLeftOutAndRemovedOnResume) {
  {
    MetricsWriter writer = open(0);
    writer.scalar(1, "loss", 1);
    writer.flush(1);
  }
  append("{\"v\":1,\"event\":\"st");
  EXPECT_EQ(read_metrics(file_).size(), 1u);
  MetricsWriter writer = open(1);
  writer.scalar(2, "loss", 2);
  writer.flush(2);
  EXPECT_EQ(read_metrics(file_).size(), 2u);
}

TEST_F(Metrics, ATornLastLineWithALineBreakIsDroppedAndKeptToBeSaid) {
  open(0).event("run", 0, Json::object());
  append("{\"v\":1,\"event\":\"st\n");
  EXPECT_EQ(open(3).torn(), "{\"v\":1,\"event\":\"st");
  EXPECT_EQ(read_metrics(file_).size(), 1U);
  EXPECT_EQ(open(3).torn(), "");
  write_atomic(file_, "{\"v\"");  // nothing else is there
  EXPECT_EQ(open(3).torn(), "{\"v\"");
  EXPECT_EQ(read_file(file_), "");
}

TEST_F(Metrics, ABadLineInTheMiddleIsNamed) {
  append("{\"v\":1,\"event\":\"run\",\"t\":1,\"rank\":0,\"step\":0}\nnonsense\n");
  try {
    read_metrics(file_);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
    EXPECT_NE(std::string(error.what()).find("metrics.jsonl:2"), std::string::npos) << error.what();
  }
}

TEST_F(Metrics, AnUnknownVersionIsRefused) {
  append("{\"v\":2,\"event\":\"run\",\"t\":1,\"rank\":0,\"step\":0}\n");
  EXPECT_THROW(read_metrics(file_), Error);
}

TEST_F(Metrics, AFullDiskIsAnIoError) {
  std::filesystem::create_symlink("/dev/full", dir_ / "full.jsonl");
  int fd = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(fd, 0);
  close(fd);
  try {
    MetricsWriter writer = MetricsWriter::open(dir_ / "full.jsonl", 0);
    writer.event("run", 0, Json::object());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kIo) << error.what();
  }
}

}  // namespace
}  // namespace sf::report
