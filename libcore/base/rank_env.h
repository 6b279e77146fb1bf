// SPDX-License-Identifier: Apache-2.0
// Which rank am I? Pure: from a copy of the environment (torchrun's variables or Slurm's) to a world, with provenance.
#pragma once
#include <map>
#include <string>

namespace sf {

struct RankEnv {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;
  std::string source = "single";  // "single", "torchrun", "slurm", "supervisor"
};

// Throws kUsage on half a set of variables, or on two sets that disagree: never a silent world of one.
// A lone batch shell (SLURM_PROCID without SLURM_NTASKS > 1 and without a step id) is a world of one.
RankEnv rank_env(const std::map<std::string, std::string>& environment);

}  // namespace sf
