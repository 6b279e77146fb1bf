// SPDX-License-Identifier: Apache-2.0
// [engine] and [shard] into what a plan follows: one function for --plan and for the run, so that they cannot differ.
#pragma once
#include <set>
#include <string>

#include "config/settings.h"
#include "plan/schedule.h"

namespace sf::tool {

// Applies and echoes engine.mode, .compute_dtype, .numerics, .accumulate, .prefetch, shard.backend, .reshard, .replicas
// and training.shard_frozen_tables (which speaks of `tables`) in the name of room engine. kConfig for settings that
// exclude each other.
plan::ScheduleOptions apply_schedule(config::Settings& settings, const std::set<std::string>& tables, int world);

}  // namespace sf::tool
