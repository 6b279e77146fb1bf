// SPDX-License-Identifier: Apache-2.0
#include "app/cli.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/make_shared.hpp>
#include <boost/program_options.hpp>
#include <optional>

#include "base/utf8.h"

namespace sf::app {
namespace {

namespace po = boost::program_options;

const std::vector<Option>& common_options() {
  static const std::vector<Option> options = {
      {.name = "config",
       .value = "FILE",
       .help = "settings file; may be repeated, later wins",
       .letter = 'c',
       .repeatable = true},
      {.name = "set", .value = "KEY=VALUE", .help = "one setting, e.g. engine.threads=2", .repeatable = true},
      {.name = "print-config", .help = "print the settings with their origins and exit"},
      {.name = "plan", .help = "resolve, check, predict; touch nothing", .letter = 'n'},
      {.name = "format", .value = "text|json", .help = "form of the result"},
      {.name = "progress", .value = "auto|always|never", .help = "progress on stderr"},
      {.name = "quiet", .help = "only warnings and errors", .letter = 'q'},
      {.name = "verbose", .help = "more lines: every rank, every setting", .letter = 'v'},
      {.name = "help", .help = "this text", .letter = 'h'},
      {.name = "version", .help = "name and release", .letter = 'V'},
      {.name = "build-info", .help = "how this program was built, as JSON"},
      {.name = "completion", .value = "bash|zsh|fish", .help = "completion script for a shell"},
  };
  return options;
}

const Option& ranks_option() {
  static const Option option = {.name = "ranks", .value = "N", .help = "start N ranks on this host"};
  return option;
}

const Option& output_option() {
  static const Option option = {
      .name = "output", .value = "FILE", .help = "write the result to FILE, not to stdout", .letter = 'o'};
  return option;
}

po::options_description describe(const std::vector<Option>& options) {
  po::options_description description;
  for (const Option& option : options) {
    std::string names = option.letter ? fmt::format("{},{}", option.name, option.letter) : option.name;
    if (option.value.empty()) {
      description.add_options()(names.c_str(), option.help.c_str());
    } else {
      description.add_options()(names.c_str(), po::value<std::string>(), option.help.c_str());
    }
  }
  return description;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates, std::string_view dashes) {
  std::string near = config::nearest(word, candidates);
  return near.empty() ? "" : fmt::format(" (did you mean {}{}?)", dashes, near);
}

// Boost's error in our words.
std::string reworded(const po::error& error, const std::vector<Option>& options) {
  const auto* named = dynamic_cast<const po::error_with_option_name*>(&error);
  if (!named) return error.what();
  std::string shown = named->get_option_name();
  std::string bare = shown.substr(std::min(shown.find_first_not_of('-'), shown.size()));
  if (bare.size() == 1 && shown.rfind("--", 0) == 0) shown.erase(0, 1);
  if (dynamic_cast<const po::unknown_option*>(&error)) {
    std::vector<std::string> names;
    for (const Option& option : options) names.push_back(option.name);
    return fmt::format("unknown option {}{}", shown, suggestion(bare, names, "--"));
  }
  const Option* option = find_option(options, bare);
  if (option && option->value.empty()) return fmt::format("--{} takes no value", bare);
  if (option) return fmt::format("--{} wants a value: --{} {}", bare, bare, option->value);
  return error.what();
}

std::vector<po::option> tokens(const std::vector<std::string>& arguments, const std::vector<Option>& options,
                               const std::string& help_command) {
  namespace style = po::command_line_style;
  constexpr int kStyle = style::allow_long | style::allow_short | style::allow_dash_for_short |
                         style::long_allow_adjacent | style::long_allow_next | style::short_allow_adjacent |
                         style::short_allow_next | style::allow_sticky;
  po::options_description description = describe(options);
  try {
    return po::command_line_parser(arguments).options(description).style(kStyle).run().options;
  } catch (const po::error& error) {
    throw Misuse{reworded(error, options), help_command};
  }
}

// "a|b|c" lists the values an option accepts.
void check_choice(const Option& option, const std::string& value, const std::string& help_command) {
  if (!closed_choice(option)) return;
  std::vector<std::string> choices;
  for (size_t at = 0; at <= option.value.size();) {
    size_t bar = std::min(option.value.find('|', at), option.value.size());
    choices.push_back(option.value.substr(at, bar - at));
    if (choices.back() == value) return;
    at = bar + 1;
  }
  throw Misuse{
      fmt::format("--{}: wanted {}, found '{}'{}", option.name, option.value, value, suggestion(value, choices, "")),
      help_command};
}

void collect(Parsed& parsed, const std::vector<po::option>& found, const std::vector<Option>& options,
             const std::string& help_command) {
  for (const po::option& one : found) {
    if (one.string_key.empty()) {
      parsed.positional.insert(parsed.positional.end(), one.value.begin(), one.value.end());
      continue;
    }
    std::string name = one.string_key;
    const Option* option = find_option(options, name);  // a long option of one letter (--n) is not its short namesake
    for (const Option& short_form : options)
      if (!option && (name == std::string(1, short_form.letter) || name == fmt::format("-{}", short_form.letter))) {
        name = short_form.name;
        option = &short_form;
      }
    std::vector<std::string>& values = parsed.values[name];
    if (option && !option->value.empty() && !option->repeatable && !values.empty())
      throw Misuse{fmt::format("--{} is given twice", name), help_command};
    values.push_back(one.value.empty() ? "" : one.value.front());
    if (option && !option->value.empty()) check_choice(*option, values.back(), help_command);
  }
}

Parsed::Act act_of(const Parsed& parsed) {
  if (parsed.has("help")) return Parsed::Act::kHelp;
  if (parsed.has("version")) return Parsed::Act::kVersion;
  if (parsed.has("build-info")) return Parsed::Act::kBuildInfo;
  if (parsed.has("completion")) return Parsed::Act::kCompletion;
  if (parsed.has("print-config")) return Parsed::Act::kPrintConfig;
  return Parsed::Act::kRun;
}

void check_verb_call(const Parsed& parsed, const std::string& help_command) {
  const Verb& verb = *parsed.verb;
  std::string names = verb.takes_positional ? positional_parts(verb).first : "";  // "DIR", or "A B" for two
  auto wanted = names.empty() ? size_t{0} : 1 + static_cast<size_t>(std::count(names.begin(), names.end(), ' '));
  if (parsed.positional.size() > wanted)
    throw Misuse{fmt::format("unexpected argument '{}'", parsed.positional[wanted]), help_command};
  if (parsed.act != Parsed::Act::kRun) return;
  if (parsed.positional.size() < wanted)
    throw Misuse{fmt::format("{} is missing: {}", positional_parts(verb).first, positional_parts(verb).second),
                 help_command};
  const std::vector<std::string>& choices = verb.positional_choices;
  if (!choices.empty() && std::ranges::find(choices, parsed.positional.front()) == choices.end())
    throw Misuse{fmt::format("{}: wanted {}, found '{}'{}", positional_parts(verb).first, positional_parts(verb).second,
                             parsed.positional.front(), suggestion(parsed.positional.front(), choices, "")),
                 help_command};
  for (const Option& option : verb.options)
    if (option.required && !parsed.has(option.name))
      throw Misuse{fmt::format("--{} {} is required: {}", option.name, option.value, option.help), help_command};
}

const Verb& find_verb(const Command& command, const std::string& word, const std::string& help_command) {
  std::vector<std::string> names;
  for (const Verb& verb : command.verbs) {
    if (verb.name == word) return verb;
    names.push_back(verb.name);
  }
  throw Misuse{fmt::format("unknown verb '{}'{}", word, suggestion(word, names, "")), help_command};
}

}  // namespace

std::string Parsed::last(std::string_view option, std::string_view otherwise) const {
  auto found = values.find(std::string(option));
  return found == values.end() ? std::string(otherwise) : found->second.back();
}

const Option* find_option(const std::vector<Option>& options, std::string_view name) {
  for (const Option& option : options)
    if (option.name == name) return &option;
  return nullptr;
}

bool closed_choice(const Option& option) {
  return option.value.find('|') != std::string::npos &&
         option.value.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos;
}

std::vector<Option> options_of(const Verb& verb) {
  std::vector<Option> options = verb.options;
  if (verb.ranks) options.push_back(ranks_option());
  if (!find_option(options, "output")) options.push_back(output_option());
  options.insert(options.end(), common_options().begin(), common_options().end());
  return options;
}

const std::vector<Option>& command_options() {
  static const std::vector<Option> options = [] {
    std::vector<Option> chosen;
    for (const char* name : {"format", "help", "version", "build-info", "completion"})
      chosen.push_back(*find_option(common_options(), name));
    return chosen;
  }();
  return options;
}

std::pair<std::string, std::string> positional_parts(const Verb& verb) {
  size_t gap = verb.positional_help.find("  ");
  if (gap == std::string::npos) return {verb.positional_help, ""};
  return {verb.positional_help.substr(0, gap), verb.positional_help.substr(gap + 2)};
}

namespace {

// "--set", "--set=x", "-cFILE", "-qv": one of the options that every verb has, and whether its value follows.
std::optional<bool> common_option_awaits_value(std::string_view argument) {
  const bool is_long = argument.starts_with("--");
  const std::string_view name = argument.substr(is_long ? 2 : 1, argument.find('=') - (is_long ? 2 : 1));
  for (const Option& option : common_options()) {
    if (is_long ? option.name == name : name.starts_with(option.letter))
      return !option.value.empty() && (is_long ? argument.find('=') == std::string_view::npos : name.size() == 1);
  }
  return std::nullopt;
}

// The verb comes first; options that every verb has may stand in front of it.
std::vector<std::string> with_verb_first(std::vector<std::string> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view one = arguments[i];
    if (!one.starts_with('-')) {
      std::rotate(arguments.begin(), arguments.begin() + static_cast<ptrdiff_t>(i),
                  arguments.begin() + static_cast<ptrdiff_t>(i) + 1);
      break;
    }
    const std::optional<bool> awaits = one.size() > 1 ? common_option_awaits_value(one) : std::nullopt;
    if (!awaits) break;
    i += *awaits;
  }
  return arguments;
}

}  // namespace

Parsed parse(const Command& command, const std::vector<std::string>& given) {
  std::string help_command = command.name + " --help";
  if (given.empty()) throw Misuse{"a verb is missing", help_command};
  const std::vector<std::string> arguments = with_verb_first(given);
  Parsed parsed;
  bool with_verb = arguments.front().empty() || arguments.front().front() != '-';
  std::vector<Option> options = command_options();
  std::vector<std::string> rest = arguments;
  if (with_verb) {
    parsed.verb = &find_verb(command, arguments.front(), help_command);
    help_command = fmt::format("{} {} --help", command.name, parsed.verb->name);
    options = options_of(*parsed.verb);
    rest.erase(rest.begin());
  }
  collect(parsed, tokens(rest, options, help_command), options, help_command);
  parsed.act = act_of(parsed);
  if (parsed.verb) {
    check_verb_call(parsed, help_command);
  } else if (parsed.act == Parsed::Act::kRun || !parsed.positional.empty()) {
    throw Misuse{"the verb comes first", help_command};
  }
  return parsed;
}

namespace {

std::string escaped_quotes(const std::string& argument) {
  std::string text;
  for (char c : argument) text += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return text;
}

}  // namespace

std::string shell_quoted(const std::vector<std::string>& arguments) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,@%+-";
  std::string line;
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += ' ';
    if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) {
      line += argument;
      continue;
    }
    if (printable(argument) != argument) {  // $'...', as bash reads it: a command line is one line
      line += fmt::format("$'{}'", printable(escaped_quotes(argument)));
      continue;
    }
    line += '\'';
    for (char c : argument) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace sf::app
