// SPDX-License-Identifier: Apache-2.0
// Speed of training under the reference's names (eagle_dflash 7.8), and what it lacks.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace sf::train {

// One optimizer step, as the rank that reports saw it.
struct PerfWindow {
  double elapsed_s = 0;     // from the end of the step before, with what lay between (publishing, reporting)
  double data_wait_s = 0;   // waiting for samples
  double compute_s = 0;     // forward, backward, collective calls, optimizer
  double exposed_s = 0;     // of these, collective calls that computing had to wait for
  int64_t samples = 0;      // positions of all ranks that were not void
  int64_t tokens = 0;       // of all ranks
  uint64_t bytes_sent = 0;  // in collective calls, by this rank
};

// Names begin with "perf/". Rates are left out if no time has passed.
std::vector<std::pair<std::string_view, double>> perf_counters(const PerfWindow& window);

}  // namespace sf::train
