// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "app/command.h"

namespace sf::tool {

// `sf-eval report RUN [-o PAGE] [--before FILE] [--after FILE]`: the run as one page and its curves. The files hold
// records of `sf-eval accept --format json`; without either, before.json and after.json in RUN or beside it are taken.
// Prints the page's path; with --format json a record with all files.
int report_run(app::Invocation& invocation);

}  // namespace sf::tool
