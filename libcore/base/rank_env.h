// SPDX-License-Identifier: Apache-2.0
// Which rank am I, and where do ranks meet? Pure: from a copy of the environment (torchrun's variables or Slurm's) to a
// world, with provenance.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace sf {

struct RankEnv {
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  int local_world = 1;
  std::string source = "single";  // "single", "torchrun", "slurm", "supervisor"
  // Where rank 0 can be met, as the launcher says: empty and 0 if it does not. Another 16 ports above are tried.
  std::string meet_host;
  int meet_port = 0;
  std::string job;  // names this start of this set of ranks, equal on all: "slurm 17.0", "torchrun n1:29500"
};

// Throws kUsage on half a set of variables, or on two sets that disagree: never a silent world of one.
// A lone batch shell (SLURM_PROCID without SLURM_NTASKS > 1 and without a step id) is a world of one.
RankEnv rank_env(const std::map<std::string, std::string>& environment);

// The first host of a list as Slurm writes it: "n[003-005,9]x,gpu5" is "n003x".
std::string first_host(std::string_view list);
// The entry of node `node` in a list of counts as Slurm writes it: "2(x3),1" is 2, 2, 2, 1. 0 if there is none.
int count_of_node(std::string_view list, int node);

}  // namespace sf
