// SPDX-License-Identifier: Apache-2.0
#include "tool/apply_schedule.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/fault.h"
#include "config/apply.h"

namespace sf::tool {

plan::ScheduleOptions apply_schedule(config::Settings& settings, const std::set<std::string>& tables, int world) {
  config::Apply segments(settings, "every segment", "engine"), parameters(settings, "every parameter", "engine");
  plan::ScheduleOptions options;
  options.world = world;
  options.mode = segments.word("engine.mode") == "recompute" ? plan::Mode::kRecompute : plan::Mode::kKeep;
  options.compute = *dtype_from_config(segments.word("engine.compute_dtype"));
  segments.word("engine.numerics");
  std::string backend = parameters.word("shard.backend");
  options.layout = backend == "fsdp1"   ? plan::Layout::kFlat
                   : backend == "fsdp2" ? plan::Layout::kDim0
                                        : plan::Layout::kReplicate;
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
