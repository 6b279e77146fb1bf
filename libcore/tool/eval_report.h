// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <initializer_list>

#include "app/command.h"

namespace sf::tool {

// `sf-eval report` of verdicts (a directory of them, or one file) or of a recorded curve (.csv): the table on stdout,
// and with -o the page. Exit status 1 if the last checkpoint's pass@1 is below --fail-under.
int report_verdicts(app::Invocation& invocation, const std::filesystem::path& path);
// kUsage for an option that belongs to the report of something else than `path`: `whose`, "a run".
void refuse_options(const app::Invocation& invocation, std::initializer_list<const char*> options, const char* whose,
                    const std::filesystem::path& path);
// Whether `path` is such a thing, and not the directory of a run.
bool holds_verdicts(const std::filesystem::path& path);

// `sf-eval compare NEW --against OLD`: paired tests of every file of verdicts in NEW against the one in OLD.
int eval_compare(app::Invocation& invocation);

}  // namespace sf::tool
