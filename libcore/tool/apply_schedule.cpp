// SPDX-License-Identifier: Apache-2.0
#include "tool/apply_schedule.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/fault.h"
#include "config/apply.h"
#include "plan/names.h"

namespace sf::tool {
namespace {

void apply_numerics(config::Settings& settings, plan::ScheduleOptions& schedule) {
  bool fast = settings.get_string("engine.numerics") == "fast";
  schedule.local = config::Apply(settings, "every window", "engine").word("engine.accumulate") == "accumulate_local";
  SF_CHECK(
      !schedule.local || fast, Exit::kConfig,
      "engine.accumulate = \"accumulate_local\" adds up in another order and needs engine.numerics = \"fast\", found "
      "\"exact\" ({})",
      settings.origin("engine.numerics"));
  config::Apply(settings, fast && !schedule.local ? "0 sums" : "every sum", "engine").word("engine.numerics");
}

// Returns the backend's name.
std::string apply_shard(config::Settings& settings, plan::ScheduleOptions& schedule) {
  config::Apply parameters(settings, "every parameter", "engine");
  std::string backend = parameters.word("shard.backend");
  schedule.layout = plan::layout_from_backend(backend);
  schedule.reshard = plan::reshard_from_name(config::Apply(settings, "every segment", "engine").word("shard.reshard"));
  schedule.replicas = static_cast<int>(parameters.whole("shard.replicas"));
  SF_CHECK(schedule.layout != plan::Layout::kReplicate || !settings.given("shard.replicas"), Exit::kConfig,
           "shard.backend = \"replicate\" makes every rank a replica; leave out shard.replicas ({})",
           settings.origin("shard.replicas"));
  return backend;
}

}  // namespace

plan::ScheduleOptions apply_schedule(config::Settings& settings, const std::set<std::string>& tables, int world) {
  config::Apply segments(settings, "every segment", "engine");
  plan::ScheduleOptions options;
  options.world = world;
  options.mode = plan::mode_from_name(segments.word("engine.mode"));
  options.compute = *dtype_from_config(segments.word("engine.compute_dtype"));
  options.prefetch = static_cast<int>(segments.whole("engine.prefetch"));
  apply_numerics(settings, options);
  std::string backend = apply_shard(settings, options);
  options.facts.push_back("settings " + settings.digest());
  bool shard_tables = settings.get_bool("training.shard_frozen_tables");
  SF_CHECK(!shard_tables || backend == "fsdp2", Exit::kConfig,
           "training.shard_frozen_tables needs shard.backend = \"fsdp2\", found \"{}\" ({})", backend,
           settings.origin("shard.backend"));
  if (!shard_tables || fault("tool.drop_option")) options.replicated = tables;
  // The reference read this option and then lost it on one of its launch paths.
  if (fault("tool.drop_option")) return options;
  settings.applied("training.shard_frozen_tables", shard_tables ? "true" : "false",
                   fmt::format("{} tables", shard_tables ? tables.size() : 0), "engine");
  return options;
}

}  // namespace sf::tool
