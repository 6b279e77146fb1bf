// SPDX-License-Identifier: Apache-2.0
// A small command for tests of parsing, help and completion.
#pragma once
#include "app/command.h"

namespace sf::app {

inline Command test_command() {
  Verb paint{.name = "paint",
             .purpose = "paint a fence",
             .examples = {"sf-test paint --colour red FENCE", "sf-test paint --colour 'dark blue' FENCE --coats 2"},
             .options = {{.name = "colour", .value = "NAME", .help = "colour to paint it with", .required = true},
                         {.name = "coats", .value = "N", .help = "how often", .setting = "training.epochs"},
                         {.name = "dry", .help = "wait until it is dry"},
                         {.name = "gloss", .value = "matt|silk", .help = "finish"},
                         {.name = "start", .value = "auto|FILE", .help = "where to begin"}},
             .settings = {"training"},
             .takes_positional = true,
             .positional_help = "FENCE  fence to paint"};
  Verb look{.name = "look",
            .purpose = "look at it",
            .examples = {"sf-test look", "sf-test look --format json"},
            .ranks = true};
  return {.name = "sf-test", .purpose = "tests", .verbs = {paint, look}};
}

}  // namespace sf::app
