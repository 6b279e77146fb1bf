// SPDX-License-Identifier: Apache-2.0
#include "tool/apply_schedule.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/fault.h"
#include "config/apply.h"
#include "config/origins.h"
#include "plan/interval.h"
#include "plan/names.h"
#include "plan/wrap.h"

namespace sf::tool {
namespace {

void apply_numerics(config::Settings& settings, plan::ScheduleOptions& schedule) {
  bool fast = settings.get_string("engine.numerics") == "fast";
  schedule.local = settings.get_string("engine.accumulate") == "accumulate_local";
  SF_CHECK(
      !schedule.local || fast, Exit::kConfig,
      "engine.accumulate = \"accumulate_local\" adds up in another order and needs engine.numerics = \"fast\", found "
      "\"exact\" ({})",
      settings.origin("engine.numerics"));
  config::Apply(settings, "every window", "engine").word("engine.accumulate");
  config::Apply(settings, fast && !schedule.local ? "0 sums" : "every sum", "engine").word("engine.numerics");
}

void apply_shard(config::Settings& settings, plan::ScheduleOptions& schedule) {
  config::Apply parameters(settings, "every parameter", "engine");
  schedule.layout = plan::layout_from_backend(parameters.word("shard.backend"));
  schedule.reshard = plan::reshard_from_name(config::Apply(settings, "every segment", "engine").word("shard.reshard"));
  schedule.replicas = static_cast<int>(settings.get_int("shard.replicas"));
  SF_CHECK(schedule.layout != plan::Layout::kReplicate || !settings.given("shard.replicas"), Exit::kConfig,
           "shard.backend = \"replicate\" makes every rank a replica; leave out shard.replicas ({})",
           settings.origin("shard.replicas"));
  plan::mesh_of(schedule.layout, schedule.replicas, schedule.world);  // refuses before anything is said to be applied
  parameters.whole("shard.replicas");
}

// What the reference's option reaches: a draft's own table, or one inside a group, is cut with the group anyway.
bool is_reached(const arch::Table& table) {
  return !table.own && !table.in_group;
}

std::string tables_of_target(const arch::ModelSpec& spec, std::ptrdiff_t count) {
  bool beyond = std::none_of(spec.tables.begin(), spec.tables.end(), is_reached) && !spec.tables.empty();
  return fmt::format("{} tables{}", count, beyond ? " (those of this draft are cut with its groups anyway)" : "");
}

// What shard.frozen_tables says of a table must not be undone by shard.host_resident; the word for all may be.
void refuse_two_places(const config::Settings& settings, const std::map<std::string, std::string>& words,
                       const std::vector<std::string>& resident) {
  for (const std::string& name : resident) {
    auto said = words.find(name);
    SF_CHECK(said == words.end() || said->second.find('=') == std::string::npos || said->second.ends_with("=host"),
             Exit::kConfig,
             "shard.host_resident ({}) means {}, of which shard.frozen_tables ({}) says \"{}\"; give one",
             settings.origin("shard.host_resident"), name, settings.origin("shard.frozen_tables"), said->second);
  }
}

// Where the frozen tables live. training.shard_frozen_tables is the reference's name for one residency of all of them.
std::map<std::string, plan::Residency> apply_tables(config::Settings& settings, const arch::ModelSpec& spec) {
  std::string words = settings.get_string("shard.frozen_tables"), backend = settings.get_string("shard.backend");
  bool all = settings.get_bool("training.shard_frozen_tables");
  SF_CHECK(!all || backend == "fsdp2", Exit::kConfig,
           "training.shard_frozen_tables needs shard.backend = \"fsdp2\", found \"{}\" ({})", backend,
           settings.origin("shard.backend"));
  SF_CHECK(!all || !settings.given("shard.frozen_tables"), Exit::kConfig,
           "training.shard_frozen_tables ({}) and shard.frozen_tables ({}) both say where tables live; give one",
           settings.origin("training.shard_frozen_tables"), settings.origin("shard.frozen_tables"));
  std::map<std::string, plan::Residency> tables =
      config::judged("shard.frozen_tables", [&] { return plan::residencies_of(spec, words); });
  std::map<std::string, std::string> said = plan::words_of_tables(spec, words);
  const std::string resident = settings.get_string("shard.host_resident");
  const std::vector<std::string> names =
      config::judged("shard.host_resident", [&] { return plan::host_resident(spec, resident); });
  refuse_two_places(settings, said, names);
  for (const std::string& name : names) said.erase(name);
  settings.applied("shard.frozen_tables", words, fmt::format("{} tables", all ? 0 : said.size()), "engine");
  // The reference read this option and then lost it on one of its launch paths.
  if (fault("tool.drop_option")) return tables;
  std::ptrdiff_t reached = 0;
  for (const arch::Table& table : spec.tables) {
    if (!all || !is_reached(table) || std::find(names.begin(), names.end(), table.parameter) != names.end()) continue;
    tables.at(table.parameter) = plan::Residency::kShard;
    ++reached;
  }
  settings.applied("training.shard_frozen_tables", all ? "true" : "false",
                   all ? tables_of_target(spec, reached) : "0 tables", "engine");
  for (const std::string& name : names) tables[name] = plan::Residency::kHost;
  settings.applied("shard.host_resident", resident, fmt::format("{} parameters", names.size()), "engine");
  return tables;
}

// Segments of which no module is wrapped. By default each is a group of its own.
std::set<std::string> apply_wrap(config::Settings& settings, const arch::ModelSpec& spec,
                                 const std::map<std::string, plan::Residency>& tables) {
  std::vector<std::string> types = settings.get_strings("shard.wrap");
  std::set<std::string> ignored, root;
  for (const auto& [name, residency] : tables)
    if (residency == plan::Residency::kHost) ignored.insert(name);
  if (!types.empty()) root = config::judged("shard.wrap", [&] { return plan::root_segments(spec, types, ignored); });
  std::string what = fmt::format("{} segments ({} of them in the root group)", spec.segments.size(), root.size());
  settings.applied("shard.wrap", settings.shown("shard.wrap"), types.empty() ? "every segment" : what, "engine");
  return root;
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

int apply_threads(config::Settings& settings, std::string_view key, int ranks_here) {
  int asked = static_cast<int>(settings.get_int(key));
  int threads = asked > 0 ? asked : std::max(1, usable_cpus() / std::max(1, ranks_here));
  settings.applied(key, std::to_string(threads), fmt::format("{} ranks of this host", ranks_here), "run");
  return threads;
}

plan::ScheduleOptions apply_schedule(config::Settings& settings, const arch::ModelSpec& spec, int world) {
  config::Apply segments(settings, "every segment", "engine");
  plan::ScheduleOptions options;
  options.world = world;
  std::string mode = segments.word("engine.mode");
  options.mode = mode == "auto" ? plan::Mode::kKeep : plan::mode_from_name(mode);
  options.compute = *dtype_from_config(segments.word("engine.compute_dtype"));
  options.prefetch = static_cast<int>(segments.whole("engine.prefetch"));
  apply_numerics(settings, options);
  apply_shard(settings, options);
  // Line by line, so that ranks which were given other settings see which.
  const Json resolved = settings.resolved();
  for (const auto& [section, values] : resolved.as_object())
    for (const auto& [key, value] : values.as_object())
      options.facts.push_back(fmt::format("{}.{} = {}", section, key, value.dump()));
  options.tables = apply_tables(settings, spec);
  options.root = apply_wrap(settings, spec, options.tables);
  return options;
}

}  // namespace sf::tool
