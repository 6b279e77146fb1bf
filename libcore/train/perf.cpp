// SPDX-License-Identifier: Apache-2.0
#include "train/perf.h"

namespace sf::train {

std::vector<std::pair<std::string_view, double>> perf_counters(const PerfWindow& window) {
  std::vector<std::pair<std::string_view, double>> counters = {
      {"perf/optimizer_step_time_s", window.elapsed_s},
      {"perf/data_wait_time_s", window.data_wait_s},
      {"perf/train_compute_time_s", window.compute_s},
      {"perf/communication_exposed_s", window.exposed_s},
      {"perf/bytes_sent", static_cast<double>(window.bytes_sent)},
  };
  if (window.elapsed_s > 0) {
    counters.emplace_back("perf/optimizer_steps_per_hour", 3600 / window.elapsed_s);
    counters.emplace_back("perf/global_samples_per_second", static_cast<double>(window.samples) / window.elapsed_s);
    counters.emplace_back("perf/global_tokens_per_second", static_cast<double>(window.tokens) / window.elapsed_s);
  }
  return counters;
}

}  // namespace sf::train
