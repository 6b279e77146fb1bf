// SPDX-License-Identifier: Apache-2.0
// --from of a training verb, as far as it can be judged without asking a producer.
#pragma once
#include <optional>
#include <string>

#include "app/command.h"
#include "stream/sample.h"

namespace sf::tool {

// --from: kNoInput if it is not there, kUsage if it is a terminal.
std::string from_of(app::Invocation& invocation);
// What the run would refuse: samples of another target or draft (kProtocol naming the field), a damaged directory.
// Returns what they promise; none of a pipe.
std::optional<stream::Contract> check_source(app::Invocation& invocation, const stream::Contract& wanted);

}  // namespace sf::tool
