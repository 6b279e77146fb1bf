// SPDX-License-Identifier: Apache-2.0
// --from of a training verb, as far as it can be judged without asking a producer.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "app/command.h"
#include "stream/sample.h"

namespace sf::tool {

// Each --from: a directory of features stands alone; of handle files (and a pipe, "-") there may be several, one a
// producer. kNoInput if one is not there; a file called NAME.handle may come later. kUsage if the pipe is a terminal.
std::vector<std::string> from_of(app::Invocation& invocation);
bool lies_in_directory(const std::vector<std::string>& from);
// What the run would refuse: samples of another target or draft (kProtocol naming the field), a damaged directory.
// Returns what they promise; none of a pipe, or of a producer that has not come yet.
std::optional<stream::Contract> check_source(app::Invocation& invocation, const stream::Contract& wanted);

}  // namespace sf::tool
