// SPDX-License-Identifier: Apache-2.0
// Which segments keep their graphs, rebuild them, or rebuild them from a file, so that a run stays within a limit.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "arch/model_spec.h"
#include "plan/schedule.h"

namespace sf::plan {

// As few segments as will do are recomputed, the first ones first: when their turn comes, the graphs of later ones are
// gone. If all of them are not enough, as few as will do are offloaded. `resident`: bytes of the fullest rank under a
// schedule. The last segment is always kept: backward begins with it. If nothing fits, what needs least.
std::map<std::string, Mode> choose_modes(const arch::ModelSpec& spec, const ScheduleOptions& options,
                                         const std::function<uint64_t(const Schedule&)>& resident, uint64_t limit);

}  // namespace sf::plan
