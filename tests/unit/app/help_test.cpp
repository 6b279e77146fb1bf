// SPDX-License-Identifier: Apache-2.0
#include "app/help.h"

#include <gtest/gtest.h>

#include <sstream>

#include "app/cli.h"
#include "table.h"

namespace sf::app {
namespace {

size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  size_t most = 0;
  while (std::getline(lines, line)) most = std::max(most, line.size());
  return most;
}

TEST(Help, IsAtMostEightyColumnsWide) {
  Command command = test_command();
  command.verbs[0].options[0].help =
      std::string(40, 'x') + " " + std::string(40, 'y') + " and many more words than fit";
  EXPECT_LE(widest(command_help(command)), 80u);
  for (const Verb& verb : command.verbs) EXPECT_LE(widest(verb_help(command, verb)), 80u);
}

TEST(Help, NamesEveryOptionAndBothExamples) {
  Command command = test_command();
  for (const Verb& verb : command.verbs) {
    std::string text = verb_help(command, verb);
    for (const Option& option : options_of(verb))
      EXPECT_NE(text.find("--" + option.name), std::string::npos) << option.name;
    EXPECT_NE(text.find("$ " + verb.examples[0]), std::string::npos);
    EXPECT_NE(text.find("$ " + verb.examples[1]), std::string::npos);
  }
}

TEST(Help, LongExamplesAreBrokenWhereAShellContinues) {
  Command command = test_command();
  command.verbs[1].examples[0] =
      "sf-test look " + std::string(40, 'a') + " | sf-test paint --colour red " + std::string(30, 'b');
  std::string text = verb_help(command, command.verbs[1]);
  EXPECT_NE(text.find(" \\\n      | sf-test paint"), std::string::npos) << text;
  EXPECT_LE(widest(text), 80u);
}

TEST(Help, JsonFormHoldsTheSameOptions) {
  Command command = test_command();
  Json record = help_json(command, &command.verbs[0]);
  EXPECT_EQ(record.at("options").as_array().size(), options_of(command.verbs[0]).size());
  EXPECT_EQ(record.at("positional").as_string(), "FENCE");
  EXPECT_TRUE(record.at("options").as_array()[0].at("required").as_bool());
}

TEST(Completion, NamesEveryVerbAndOptionInEveryShell) {
  Command command = test_command();
  for (const char* shell : {"bash", "zsh", "fish"}) {
    std::string script = completion(command, shell);
    for (const Verb& verb : command.verbs) {
      EXPECT_NE(script.find(verb.name), std::string::npos) << shell;
      for (const Option& option : options_of(verb)) EXPECT_NE(script.find(option.name), std::string::npos) << shell;
    }
    EXPECT_NE(script.find("training.learning_rate="), std::string::npos) << shell;
  }
}

}  // namespace
}  // namespace sf::app
