// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "app/cli.h"
#include "app/help.h"
#include "base/error.h"

namespace sf::app {
namespace {

enum class Kind { kSwitch, kWords, kDirectory, kFile, kOther };

Kind kind_of(const Option& option) {
  if (option.value.empty()) return Kind::kSwitch;
  if (option.name == "set" || closed_choice(option)) return Kind::kWords;
  if (option.value == "DIR") return Kind::kDirectory;
  for (const char* path : {"FILE", "PATH", "SOURCE", "RUN"})
    if (option.value.find(path) != std::string::npos) return Kind::kFile;
  return Kind::kOther;
}

// What may follow the option, separated by blanks.
std::string words_of(const Option& option, const Verb* verb) {
  std::string text;
  if (option.name != "set") {
    text = option.value;
    std::replace(text.begin(), text.end(), '|', ' ');
    return text;
  }
  for (const config::Key& key : config::schema()) {
    if (verb && config::reads(verb->settings, key.name)) text += (text.empty() ? "" : " ") + key.name + "=";
  }
  return text;
}

std::string dashed(const Option& option, std::string_view separator) {
  std::string text = "--" + option.name;
  return option.letter ? fmt::format("-{}{}{}", option.letter, separator, text) : text;
}

std::string function_name(const Command& command) {
  std::string name = "_" + command.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// ---- bash

std::string bash_case(const std::vector<Option>& options, const Verb* verb, const std::string& indent) {
  std::string text = indent + "case $prev in\n";
  std::string all;
  for (const Option& option : options) {
    all += (all.empty() ? "--" : " --") + option.name;
    std::string action;
    switch (kind_of(option)) {
      case Kind::kSwitch:
        continue;
      case Kind::kWords:
        action = fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", words_of(option, verb));
        break;
      case Kind::kDirectory:
        action = "COMPREPLY=($(compgen -d -- \"$cur\"))";
        break;
      case Kind::kFile:
        action = "COMPREPLY=($(compgen -f -- \"$cur\"))";
        break;
      case Kind::kOther:
        action = "COMPREPLY=()";
        break;
    }
    text += fmt::format("{}  {}) {}; return ;;\n", indent, dashed(option, "|"), action);
  }
  return text + fmt::format("{}esac\n{}options='{}'\n", indent, indent, all);
}

std::string bash_script(const Command& command) {
  std::string verbs;
  for (const Verb& verb : command.verbs) verbs += (verbs.empty() ? "" : " ") + verb.name;
  std::string name = function_name(command);
  std::string text =
      fmt::format("# Completion of {} for bash; made by '{} --completion bash'.\n", command.name, command.name);
  text += fmt::format("{}() {{\n", name);
  text += "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options=\n";
  text += "  if ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then\n";
  text += fmt::format("    COMPREPLY=($(compgen -W '{}' -- \"$cur\"))\n    return\n  fi\n", verbs);
  text += "  case ${COMP_WORDS[1]} in\n";
  for (const Verb& verb : command.verbs)
    text += fmt::format("    {})\n{}      ;;\n", verb.name, bash_case(options_of(verb), &verb, "      "));
  text += fmt::format("    *)\n{}      ;;\n  esac\n", bash_case(command_options(), nullptr, "      "));
  text += "  if [[ $cur == -* ]]; then\n    COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n";
  text += "  else\n    COMPREPLY=($(compgen -f -- \"$cur\"))\n  fi\n}\n";
  return text + fmt::format("complete -o filenames -o nosort -F {} {}\n", name, command.name);
}

// ---- zsh

std::string zsh_escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c == '[' || c == ']' || c == ':')
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out;
}

std::string zsh_options(const std::vector<Option>& options, const Verb* verb, const std::string& indent) {
  std::string text;
  for (const Option& option : options) {
    std::string action;
    switch (kind_of(option)) {
      case Kind::kSwitch:
        break;
      case Kind::kWords:
        action = fmt::format(":{}:({})", zsh_escaped(option.name), words_of(option, verb));
        break;
      case Kind::kDirectory:
        action = ":directory:_files -/";
        break;
      case Kind::kFile:
        action = ":file:_files";
        break;
      case Kind::kOther:
        action = fmt::format(":{}:", zsh_escaped(option.value));
        break;
    }
    std::string spec = fmt::format("[{}]{}", zsh_escaped(option.help), action);
    std::string many = option.repeatable ? "*" : "";
    text += fmt::format("{}'{}--{}{}' \\\n", indent, many, option.name, spec);
    if (option.letter) text += fmt::format("{}'{}-{}{}' \\\n", indent, many, option.letter, spec);
  }
  return text;
}

std::string zsh_script(const Command& command) {
  std::string text = fmt::format("#compdef {}\n# Made by '{} --completion zsh'.\n", command.name, command.name);
  text += "local -a verbs\nverbs=(\n";
  for (const Verb& verb : command.verbs) text += fmt::format("  '{}:{}'\n", verb.name, zsh_escaped(verb.purpose));
  text += ")\nif ((CURRENT == 2)) && [[ $words[2] != -* ]]; then\n  _describe verb verbs\n  return\nfi\n";
  text += "local verb=$words[2]\nshift words\n((CURRENT--))\ncase $verb in\n";
  for (const Verb& verb : command.verbs) {
    text +=
        fmt::format("  {})\n    _arguments -s -S \\\n{}", verb.name, zsh_options(options_of(verb), &verb, "      "));
    text += "      '*:file:_files'\n    ;;\n";
  }
  text += fmt::format("  *)\n    _arguments -s -S \\\n{}", zsh_options(command_options(), nullptr, "      "));
  return text + "      '*:file:_files'\n    ;;\nesac\n";
}

// ---- fish

std::string fish_escaped(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out;
}

std::string fish_line(const Command& command, const std::string& when, const Option& option, const Verb* verb) {
  std::string line = fmt::format("complete -c {} -n '{}' -l {}", command.name, when, option.name);
  if (option.letter) line += fmt::format(" -s {}", option.letter);
  switch (kind_of(option)) {
    case Kind::kSwitch:
      break;
    case Kind::kWords:
      line += fmt::format(" -x -a '{}'", words_of(option, verb));
      break;
    case Kind::kDirectory:
      line += " -x -a '(__fish_complete_directories)'";
      break;
    case Kind::kFile:
      line += " -r";
      break;
    case Kind::kOther:
      line += " -x";
      break;
  }
  return line + fmt::format(" -d '{}'\n", fish_escaped(option.help));
}

std::string fish_script(const Command& command) {
  std::string text =
      fmt::format("# Completion of {} for fish; made by '{} --completion fish'.\n", command.name, command.name);
  for (const Verb& verb : command.verbs)
    text += fmt::format("complete -c {} -f -n __fish_use_subcommand -a {} -d '{}'\n", command.name, verb.name,
                        fish_escaped(verb.purpose));
  for (const Option& option : command_options()) text += fish_line(command, "__fish_use_subcommand", option, nullptr);
  for (const Verb& verb : command.verbs)
    for (const Option& option : options_of(verb))
      text += fish_line(command, "__fish_seen_subcommand_from " + verb.name, option, &verb);
  return text;
}

}  // namespace

std::string completion(const Command& command, const std::string& shell) {
  if (shell == "bash") return bash_script(command);
  if (shell == "zsh") return zsh_script(command);
  SF_CHECK(shell == "fish", Exit::kUsage, "--completion: wanted bash, zsh or fish, found {}", shell);
  return fish_script(command);
}

}  // namespace sf::app
