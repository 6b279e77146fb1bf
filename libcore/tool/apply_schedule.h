// SPDX-License-Identifier: Apache-2.0
// [engine] and [shard] into what a plan follows: one function for --plan and for the run, so that they cannot differ.
#pragma once
#include <string_view>

#include "config/settings.h"
#include "plan/schedule.h"

namespace sf::tool {

// Applies and echoes engine.mode, .compute_dtype, .numerics, .accumulate, .prefetch, shard.backend, .reshard,
// .replicas, .frozen_tables, .host_resident, .wrap and training.shard_frozen_tables in the name of room engine. kConfig
// for settings that exclude each other, and those of plan::residencies_of, host_resident and wrap_targets.
plan::ScheduleOptions apply_schedule(config::Settings& settings, const arch::ModelSpec& spec, int world);

// Threads of a rank: the setting `key`, or (0) the CPUs this process may use divided by `ranks_here`. Applied, echoed.
int apply_threads(config::Settings& settings, std::string_view key, int ranks_here);

}  // namespace sf::tool
