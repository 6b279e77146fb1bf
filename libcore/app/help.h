// SPDX-License-Identifier: Apache-2.0
// Help and completion: text made from the option tables, at most 80 columns wide.
#pragma once
#include <string>

#include "app/command.h"

namespace sf::app {

std::string command_help(const Command& command);
std::string verb_help(const Command& command, const Verb& verb);
// The same facts as a record, for scripts that check manual pages and completions.
Json help_json(const Command& command, const Verb* verb);
// A completion script for "bash", "zsh" or "fish".
std::string completion(const Command& command, const std::string& shell);

}  // namespace sf::app
