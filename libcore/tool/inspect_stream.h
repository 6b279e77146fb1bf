// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "app/command.h"

namespace sf::tool {

// `sf-capture inspect WHAT`: a handle (file, or - for stdin) or a directory of features, as text. Of a directory every
// record is read and every hash checked; --rows lists the samples.
int inspect_stream(app::Invocation& invocation);

}  // namespace sf::tool
