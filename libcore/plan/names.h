// SPDX-License-Identifier: Apache-2.0
// Words of the settings into the plan's kinds; the schema has refused all others.
#pragma once
#include <string_view>

#include "plan/schedule.h"

namespace sf::plan {

Layout layout_from_backend(std::string_view backend);  // fsdp2, fsdp1, replicate
Mode mode_from_name(std::string_view name);
Reshard reshard_from_name(std::string_view name);

}  // namespace sf::plan
