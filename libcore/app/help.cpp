// SPDX-License-Identifier: Apache-2.0
#include "app/help.h"

#include <fmt/core.h>

#include <algorithm>

#include "app/cli.h"

namespace sf::app {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kColumn = 28;  // where the explanations start

// Words of `text` from column `indent` on; the first line starts at column `at`.
std::string wrapped(std::string_view text, size_t at, size_t indent) {
  std::string out;
  size_t column = at;
  bool first = true;
  while (!text.empty()) {
    size_t space = text.find(' ');
    std::string_view word = text.substr(0, space);
    text = space == std::string_view::npos ? "" : text.substr(space + 1);
    if (word.empty()) continue;
    if (!first && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    first = false;
  }
  return out;
}

std::string row(const std::string& left, std::string_view right) {
  std::string line = "  " + left;
  if (line.size() + 2 > kColumn) {
    line += "\n" + std::string(kColumn, ' ');
  } else {
    line.resize(kColumn, ' ');
  }
  return line + wrapped(right, kColumn, kColumn) + "\n";
}

std::string spelled(const Option& option) {
  std::string text = option.letter ? fmt::format("-{}, --{}", option.letter, option.name) : "    --" + option.name;
  return option.value.empty() ? text : text + " " + option.value;
}

// An example may be a pipeline; it is broken before a bar or an option rather than run past the margin.
std::string example(const std::string& text) {
  std::string out = "  $ ";
  size_t column = 4;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = begin;
    do {
      end = text.find(' ', end + 1);
      if (end == std::string::npos) end = text.size();
    } while (end < text.size() && text[end + 1] != '-' && text[end + 1] != '|');
    std::string piece = text.substr(begin, end - begin);
    size_t together = piece.size();  // a command of a pipeline is kept on one line if it can be
    if (piece.front() == '|') together = std::min(text.find(" |", end), text.size()) - begin;
    if (begin > 0 && column + together + 3 > kWidth) {
      out += " \\\n      ";
      column = 6;
    } else if (begin > 0) {
      out += ' ';
      ++column;
    }
    out += piece;
    column += piece.size();
    begin = end + 1;
  }
  return out + "\n";
}

std::string see_also(const Command& command, bool settings) {
  return fmt::format("\nSee also: {}(1), {}shardforge(7)\n", command.name, settings ? "shardforge.toml(5), " : "");
}

Json option_json(const Option& option) {
  return Json::object()
      .set("name", option.name)
      .set("letter", option.letter ? Json(std::string(1, option.letter)) : Json())
      .set("value", option.value.empty() ? Json() : Json(option.value))
      .set("required", option.required)
      .set("repeatable", option.repeatable)
      .set("setting", option.setting.empty() ? Json() : Json(option.setting))
      .set("help", option.help);
}

Json options_json(const std::vector<Option>& options) {
  Json list = Json::array();
  for (const Option& option : options) list.push(option_json(option));
  return list;
}

Json strings_json(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) list.push(text);
  return list;
}

Json verb_json(const Verb& verb) {
  return Json::object()
      .set("name", verb.name)
      .set("purpose", verb.purpose)
      .set("positional", verb.takes_positional ? Json(positional_parts(verb).first) : Json())
      .set("options", options_json(options_of(verb)))
      .set("settings", strings_json(verb.settings))
      .set("examples", strings_json(verb.examples));
}

const char* type_word(config::Key::Type type) {
  switch (type) {
    case config::Key::Type::kBool:
      return "bool";
    case config::Key::Type::kInt:
      return "integer";
    case config::Key::Type::kFloat:
      return "float";
    case config::Key::Type::kString:
      return "string";
    case config::Key::Type::kStringList:
      return "list of strings";
    case config::Key::Type::kIntList:
      return "list of integers";
    case config::Key::Type::kTable:
      return "table or path";
  }
  return "unknown";
}

Json key_json(const config::Key& key) {
  bool ranged = key.min < key.max;
  return Json::object()
      .set("name", key.name)
      .set("type", type_word(key.type))
      .set("default", key.otherwise)
      .set("min", ranged ? Json(key.min) : Json())
      .set("max", ranged && key.max < 1e16 ? Json(key.max) : Json())
      .set("choices", strings_json(key.choices))
      .set("help", key.doc);
}

}  // namespace

std::string command_help(const Command& command) {
  std::string text = wrapped(fmt::format("{} - {}", command.name, command.purpose), 0, 2) + "\n";
  text += fmt::format("\nUsage: {} VERB [OPTION]...\n\nVerbs:\n", command.name);
  for (const Verb& verb : command.verbs) text += row(verb.name, verb.purpose);
  text += "\nOptions:\n";
  for (const Option& option : command_options()) text += row(spelled(option), option.help);
  text += fmt::format("\n'{} VERB --help' tells the rest. Examples:\n", command.name);
  std::vector<std::string> shown;
  for (const Verb& verb : command.verbs)
    if (shown.size() < 2 && !verb.examples.empty()) shown.push_back(verb.examples.front());
  if (command.verbs.size() == 1) shown = command.verbs.front().examples;
  for (const std::string& one : shown) text += example(one);
  return text + see_also(command, true);
}

std::string verb_help(const Command& command, const Verb& verb) {
  std::string text = wrapped(fmt::format("{} {} - {}", command.name, verb.name, verb.purpose), 0, 2) + "\n";
  std::string usage = fmt::format("Usage: {} {}", command.name, verb.name);
  if (verb.takes_positional) usage += " " + positional_parts(verb).first;
  std::vector<Option> options = options_of(verb);
  size_t own = verb.options.size() + (verb.ranks ? 1 : 0) + (find_option(verb.options, "output") ? 0 : 1);
  for (size_t i = 0; i < own; ++i)
    if (options[i].required) usage += fmt::format(" --{} {}", options[i].name, options[i].value);
  text += "\n" + wrapped(usage + " [OPTION]...", 0, 7) + "\n\n";
  if (verb.takes_positional) text += row(positional_parts(verb).first, positional_parts(verb).second) + "\n";
  text += "Options:\n";
  for (size_t i = 0; i < own; ++i) text += row(spelled(options[i]), options[i].help);
  text += "\nOptions of all verbs:\n";
  for (size_t i = own; i < options.size(); ++i) text += row(spelled(options[i]), options[i].help);
  if (!verb.settings.empty()) {
    std::string sections;
    for (const std::string& section : verb.settings) sections += (sections.empty() ? "" : ", ") + section;
    text += "\n" + wrapped("Settings it reads (sections and keys): " + sections + ".", 0, 2) + "\n";
  }
  text += "\nExamples:\n";
  for (const std::string& one : verb.examples) text += example(one);
  return text + see_also(command, !verb.settings.empty());
}

Json help_json(const Command& command, const Verb* verb) {
  if (verb) return verb_json(*verb);
  Json verbs = Json::array();
  for (const Verb& one : command.verbs) verbs.push(verb_json(one));
  Json keys = Json::array();
  for (const config::Key& key : config::schema()) keys.push(key_json(key));
  return Json::object()
      .set("name", command.name)
      .set("purpose", command.purpose)
      .set("options", options_json(command_options()))
      .set("verbs", std::move(verbs))
      .set("keys", std::move(keys));
}

}  // namespace sf::app
