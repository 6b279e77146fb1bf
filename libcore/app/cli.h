// SPDX-License-Identifier: Apache-2.0
// argv to a call. The parser (Boost.Program_options) lives in cli.cpp alone; the option table is ours.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "app/command.h"

namespace sf::app {

struct Parsed {
  enum class Act { kRun, kHelp, kVersion, kBuildInfo, kCompletion, kPrintConfig };
  Act act = Act::kRun;
  const Verb* verb = nullptr;                              // null: the command itself (help, version, ...)
  std::map<std::string, std::vector<std::string>> values;  // option name -> its values in order; a switch has {""}
  std::vector<std::string> positional;

  bool has(std::string_view option) const { return values.contains(std::string(option)); }
  std::string last(std::string_view option, std::string_view otherwise) const;
};

// What went wrong with a command line; run_command adds "Try '... --help'".
struct Misuse {
  std::string message;
  std::string help_command;  // "sf-train eagle3 --help"
};

// Verb first, then options and at most one positional, in any order. No abbreviations. Throws Misuse.
Parsed parse(const Command& command, const std::vector<std::string>& arguments);

// The verb's own options, then the ones all verbs have.
std::vector<Option> options_of(const Verb& verb);
// Options of the command itself, before any verb.
const std::vector<Option>& command_options();
const Option* find_option(const std::vector<Option>& options, std::string_view name);
// True if the placeholder lists all values ("text|json"); capitals stand for something else ("auto|PATH").
bool closed_choice(const Option& option);
// "RUN" of "RUN  directory of the run", and the rest.
std::pair<std::string, std::string> positional_parts(const Verb& verb);

// The command line as a shell would need it.
std::string shell_quoted(const std::vector<std::string>& arguments);

}  // namespace sf::app
