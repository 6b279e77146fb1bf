// SPDX-License-Identifier: Apache-2.0
#include "base/rank_env.h"

#include <algorithm>
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
  bool local_set;  // the last two belong together, as torchrun gives them
};

int number(const Environment& env, const char* name) {
  const std::string& text = env.at(name);
  int value = -1;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SF_CHECK(error == std::errc() && end == text.data() + text.size() && value >= 0, Exit::kUsage,
           "{}=\"{}\": wanted a whole number from 0", name, text);
  return value;
}

std::optional<RankEnv> read_set(const Environment& env, const Names& names) {
  std::vector<const char*> absent;
  for (const char* name : {names.rank, names.world})
    if (!env.contains(name)) absent.push_back(name);
  const bool local = env.contains(names.local_rank), local_world = env.contains(names.local_world);
  const bool whole = names.local_set && (local || local_world);
  if (whole)
    for (const char* name : {names.local_rank, names.local_world})
      if (!env.contains(name)) absent.push_back(name);
  if (absent.size() == 2 && !whole) return std::nullopt;
  SF_CHECK(absent.empty(), Exit::kUsage, "half a set of {} variables: {} is missing; set both or none", names.source,
           absent.front());
  RankEnv result{.rank = number(env, names.rank), .world = number(env, names.world), .source = names.source};
  result.local_rank = env.contains(names.local_rank) ? number(env, names.local_rank) : result.rank;
  result.local_world = env.contains(names.local_world) ? number(env, names.local_world) : result.world;
  auto below = [](const char* name, int rank, const char* of, int world) {
    SF_CHECK(rank < world, Exit::kUsage, "{}={} but {}={}: a rank lies below its world", name, rank, of, world);
  };
  below(names.rank, result.rank, names.world, result.world);
  if (!whole) return result;
  below(names.local_rank, result.local_rank, names.local_world, result.local_world);
  SF_CHECK(result.local_world <= result.world && result.local_rank <= result.rank, Exit::kUsage,
           "{}={} of {}={} on this host, but {}={} of {}={} in all", names.local_rank, result.local_rank,
           names.local_world, result.local_world, names.rank, result.rank, names.world, result.world);
  return result;
}

std::string text(const Environment& env, const char* name) {
  auto found = env.find(name);
  return found == env.end() ? "" : found->second;
}

// Derived, not agreed: two jobs on one host differ by their numbers, and where they do not, the next ports are tried.
// Below the ports that the kernel gives away by itself.
int slurm_port(int job, int step) {
  return 20000 + (job + 37 * step) % 12000;
}

void place_torchrun(RankEnv& result, const Environment& env) {
  bool host = env.contains("MASTER_ADDR"), port = env.contains("MASTER_PORT");
  SF_CHECK(host == port, Exit::kUsage, "half a set of torchrun variables: {} is missing; set both or none",
           host ? "MASTER_PORT" : "MASTER_ADDR");
  if (!host) return;
  result.meet_host = env.at("MASTER_ADDR");
  result.meet_port = number(env, "MASTER_PORT");
  SF_CHECK(result.meet_port >= 1 && result.meet_port <= 65535, Exit::kUsage, "MASTER_PORT={} is not a port",
           result.meet_port);
  result.job = fmt::format("torchrun {}:{}", result.meet_host, result.meet_port);
  if (std::string start = text(env, "TORCHELASTIC_RUN_ID"); !start.empty()) result.job += " " + start;
}

void place_slurm(RankEnv& result, const Environment& env) {
  if (env.contains("SLURM_STEP_NUM_TASKS")) {
    SF_CHECK(number(env, "SLURM_STEP_NUM_TASKS") == result.world, Exit::kUsage,
             "SLURM_NTASKS={} but SLURM_STEP_NUM_TASKS={}: start every task by srun, and export neither", result.world,
             text(env, "SLURM_STEP_NUM_TASKS"));
  }
  int node = env.contains("SLURM_NODEID") ? number(env, "SLURM_NODEID") : 0;
  if (int here = count_of_node(text(env, "SLURM_STEP_TASKS_PER_NODE"), node); here > 0) result.local_world = here;
  int job = env.contains("SLURM_JOB_ID") ? number(env, "SLURM_JOB_ID") : 0;
  int step = env.contains("SLURM_STEP_ID") ? number(env, "SLURM_STEP_ID") : 0;
  result.meet_host = first_host(text(env, "SLURM_STEP_NODELIST"));
  result.meet_port = slurm_port(job, step);
  if (env.contains("MASTER_ADDR")) result.meet_host = env.at("MASTER_ADDR");
  if (env.contains("MASTER_PORT")) result.meet_port = number(env, "MASTER_PORT");
  result.job = fmt::format("slurm {}.{}", job, step);
  if (std::string start = text(env, "SLURM_RESTART_COUNT"); !start.empty()) result.job += " " + start;
}

}  // namespace

std::string first_host(std::string_view list) {
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    size_t end = list.find_first_of("-,]", at + 1);
    if (end == std::string_view::npos) return "";
    host += list.substr(at + 1, end - at - 1);
    at = list.find(']', at);
    if (at == std::string_view::npos) return "";
  }
  return host;
}

int count_of_node(std::string_view list, int node) {
  while (!list.empty()) {
    std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    int count = 0, times = 1;
    const char* end = entry.data() + entry.size();
    const char* at = std::from_chars(entry.data(), end, count).ptr;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') std::from_chars(at + 2, end, times);
    if (node < times) return count;
    node -= times;
  }
  return 0;
}

RankEnv rank_env(const Environment& environment) {
  auto torchrun = read_set(environment, {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", true});
  Environment step = environment;
  if (!environment.contains("SLURM_STEP_ID")) {  // a batch shell, not a task of srun
    step.erase("SLURM_PROCID");
    step.erase("SLURM_NTASKS");
  }
  auto slurm =
      read_set(step, {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", false});
  if (torchrun && slurm) {
    SF_CHECK(torchrun->rank == slurm->rank && torchrun->world == slurm->world, Exit::kUsage,
             "RANK/WORLD_SIZE say {}/{}, SLURM_PROCID/SLURM_NTASKS say {}/{}: unset one set", torchrun->rank,
             torchrun->world, slurm->rank, slurm->world);
  }
  if (torchrun) place_torchrun(*torchrun, environment);
  if (torchrun) return *torchrun;
  if (slurm) place_slurm(*slurm, environment);
  if (slurm) return *slurm;
  return {};
}

}  // namespace sf
