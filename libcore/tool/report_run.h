// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "app/command.h"

namespace sf::tool {

// `sf-eval report RUN [-o PAGE] [--acceptance FILE]...`: the run as one page and its curves. Without --acceptance,
// files named accept*.json in RUN and then beside it are taken, in the order of their names' stems "before", "after",
// others. Prints the page's path; with --format json a record with all files.
int report_run(app::Invocation& invocation);

}  // namespace sf::tool
