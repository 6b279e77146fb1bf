// SPDX-License-Identifier: Apache-2.0
#include "base/rank_env.h"

#include <charconv>
#include <optional>
#include <vector>

#include "base/error.h"

namespace sf {
namespace {

using Environment = std::map<std::string, std::string>;

struct Names {
  const char* source;
  const char *rank, *world, *local_rank, *local_world;
};

int number(const Environment& env, const char* name) {
  const std::string& text = env.at(name);
  int value = -1;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && value >= 0, Exit::kUsage,
           "{}=\"{}\" is not a rank count: wanted a whole number from 0", name, text);
  return value;
}

std::optional<RankEnv> read_set(const Environment& env, const Names& names) {
  std::vector<const char*> absent;
  for (const char* name : {names.rank, names.world})
    if (!env.contains(name)) absent.push_back(name);
  if (absent.size() == 2) return std::nullopt;
  SF_CHECK(absent.empty(), Exit::kUsage, "half a set of {} variables: {} is missing; set both or none", names.source,
           absent.front());
  RankEnv result{.rank = number(env, names.rank), .world = number(env, names.world), .source = names.source};
  result.local_rank = env.contains(names.local_rank) ? number(env, names.local_rank) : result.rank;
  result.local_world = env.contains(names.local_world) ? number(env, names.local_world) : result.world;
  SF_CHECK(result.rank < result.world, Exit::kUsage, "{}={} but {}={}: a rank lies below its world", names.rank,
           result.rank, names.world, result.world);
  return result;
}

}  // namespace

RankEnv rank_env(const Environment& environment) {
  auto torchrun = read_set(environment, {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  Environment step = environment;
  if (!environment.contains("SLURM_STEP_ID")) {  // a batch shell, not a task of srun
    step.erase("SLURM_PROCID");
    step.erase("SLURM_NTASKS");
  }
  auto slurm = read_set(step, {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"});
  if (torchrun && slurm) {
    SF_CHECK(torchrun->rank == slurm->rank && torchrun->world == slurm->world, Exit::kUsage,
             "RANK/WORLD_SIZE say {}/{}, SLURM_PROCID/SLURM_NTASKS say {}/{}: unset one set", torchrun->rank,
             torchrun->world, slurm->rank, slurm->world);
  }
  if (torchrun) return *torchrun;
  if (slurm) return *slurm;
  return {};
}

}  // namespace sf
