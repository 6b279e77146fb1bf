// SPDX-License-Identifier: Apache-2.0
#include "app/command.h"
#include "tool/verbs.h"

using sf::app::Command;
using sf::app::Verb;

namespace {

Verb inspect() {
  return {
      .name = "inspect",
      .purpose = "what a checkpoint holds: tensors, types, aliases, where it came from",
      .examples = {"sf-shard inspect target", "sf-shard inspect draft0 --format json"},
      .takes_positional = true,
      .positional_help = "DIR  checkpoint",
      .run = sf::tool::shard_inspect_verb,
  };
}

Verb verify() {
  return {
      .name = "verify",
      .purpose = "is everything there, and is it what was published?",
      .examples = {"sf-shard verify target", "sf-shard verify run/latest && echo whole"},
      .takes_positional = true,
      .positional_help = "DIR  checkpoint",
      .run = sf::tool::shard_verify_verb,
  };
}

}  // namespace

const Command& command() {
  static const Command shard = {
      .name = "sf-shard", .purpose = "look at checkpoints and check them", .verbs = {inspect(), verify()}};
  return shard;
}
