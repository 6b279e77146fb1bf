// SPDX-License-Identifier: Apache-2.0
#include "train/perf.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace sf::train {
namespace {

std::map<std::string, double> counters_of(const PerfWindow& window) {
  std::map<std::string, double> named;
  for (const auto& [name, value] : perf_counters(window)) named.emplace(name, value);
  return named;
}

TEST(Perf, CountersOfAStepFollowTheirDefinitions) {
  PerfWindow window{.elapsed_s = 0.5, .data_wait_s = 0.125, .compute_s = 0.25, .exposed_s = 0.0625};
  window.samples = 12, window.tokens = 3000, window.bytes_sent = 4096;
  EXPECT_EQ(counters_of(window), (std::map<std::string, double>{{"perf/optimizer_step_time_s", 0.5},
                                                                {"perf/optimizer_steps_per_hour", 7200},
                                                                {"perf/data_wait_time_s", 0.125},
                                                                {"perf/train_compute_time_s", 0.25},
                                                                {"perf/communication_exposed_s", 0.0625},
                                                                {"perf/global_samples_per_second", 24},
                                                                {"perf/global_tokens_per_second", 6000},
                                                                {"perf/bytes_sent", 4096}}));
}

TEST(Perf, WithoutTimeThereAreNoRates) {
  EXPECT_FALSE(counters_of({.samples = 3}).contains("perf/global_samples_per_second"));
}

}  // namespace
}  // namespace sf::train
