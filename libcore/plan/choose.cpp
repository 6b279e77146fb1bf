// SPDX-License-Identifier: Apache-2.0
#include "plan/choose.h"

#include <algorithm>
#include <vector>

#include "base/fault.h"

namespace sf::plan {

std::map<std::string, Mode> choose_modes(const arch::ModelSpec& spec, const ScheduleOptions& given,
                                         const std::function<uint64_t(const Schedule&)>& resident, uint64_t limit) {
  ScheduleOptions options = given;
  options.mode = Mode::kKeep;
  options.modes.clear();
  auto needs = [&](const std::map<std::string, Mode>& modes) {
    options.modes = modes;
    return resident(make_schedule(spec, spec.segments, options));
  };
  if (needs({}) <= limit || fault("plan.keep_all")) return {};
  const Schedule plan = make_schedule(spec, spec.segments, options);
  std::vector<std::string> names;
  for (size_t s = 0; s + 1 < plan.groups.size(); ++s)
    if (plan.groups[s].needs_graph && !plan.groups[s].members.empty()) names.push_back(plan.groups[s].name);
  auto first = [&](size_t count, Mode mode, Mode others) {
    std::map<std::string, Mode> modes;
    for (size_t i = 0; i < names.size(); ++i) modes[names[i]] = i < count ? mode : others;
    std::erase_if(modes, [](const auto& one) { return one.second == Mode::kKeep; });
    return modes;
  };
  for (auto [mode, others] : {std::pair(Mode::kRecompute, Mode::kKeep), std::pair(Mode::kOffload, Mode::kRecompute)}) {
    if (needs(first(names.size(), mode, others)) > limit) continue;
    size_t low = 0, high = names.size();  // `high` fits
    while (low < high) {
      size_t middle = (low + high) / 2;
      bool fits = needs(first(middle, mode, others)) <= limit;
      (fits ? high : low) = fits ? middle : middle + 1;
    }
    return first(high, mode, others);
  }
  return first(names.size(), Mode::kOffload, Mode::kRecompute);
}

}  // namespace sf::plan
