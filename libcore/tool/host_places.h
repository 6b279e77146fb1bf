// SPDX-License-Identifier: Apache-2.0
// Where the values of host-resident parameters lie already.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "ckpt/checkpoint.h"
#include "plan/schedule.h"
#include "tool/draft_files.h"

namespace sf::tool {

struct HostPlace {
  std::filesystem::path file;
  uint64_t offset = 0;  // bytes
  Dtype type = Dtype::kF32;
  std::string digest;  // as published; empty: not known
};
using PlaceOf = std::function<std::optional<HostPlace>(const std::string& parameter)>;

// Of a tensor, or its alias; none if it is absent or in a type that is not computed with.
std::optional<HostPlace> place_in(const ckpt::Checkpoint& files, const std::string& name);
PlaceOf places_in(const ckpt::Checkpoint& files);  // borrows it
// Of a draft's parameters and those it takes whole from its target. Borrows the draft.
PlaceOf places_of(const DraftFiles& draft);
// The places of all parameters of residency host that have one; they keep the type of their file
// (ScheduleOptions::host_types). Called by --plan and by the run.
std::map<std::string, HostPlace> place_host_tables(plan::ScheduleOptions& options, const PlaceOf& place_of);

}  // namespace sf::tool
