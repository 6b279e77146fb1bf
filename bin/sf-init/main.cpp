// SPDX-License-Identifier: Apache-2.0
#include "app/command.h"

const sf::app::Command& command();  // options.cpp

int main(int argc, char** argv) {
  return sf::app::run_command(argc, argv, command());
}
