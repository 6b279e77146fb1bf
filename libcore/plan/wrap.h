// SPDX-License-Identifier: Apache-2.0
// Which modules of a model are groups of their own, by the reference's rules (rl_lora 1.4). Pure, over names.
#pragma once
#include <set>
#include <span>
#include <string>
#include <vector>

#include "arch/model_spec.h"

namespace sf::plan {

// A module of the tree that a model's names spell.
struct Module {
  std::string name;                     // dotted; the root's is empty
  std::string type;                     // its class: "Embedding", "Qwen3DecoderLayer"
  std::vector<std::string> parameters;  // storages of it and of all beneath it
};
// In walk order, parents before children. A numbered module, and an EAGLE3 draft's midlayer, is its family's block.
std::vector<Module> modules_of(const arch::ModelSpec& spec);

struct WrapRule {
  std::vector<std::string> types;  // classes whose modules are wrapped, besides an untied embedding and head
  bool tied = false;               // embedding and head are one storage: neither is wrapped alone
  std::set<std::string> ignored;   // host-resident parameters: in no group
};
// Names of the modules that are wrapped, in walk order: the outermost of those that qualify, without those that hold
// ignored parameters only. What lies in none of them is the root's. kConfig: no type is wanted, or no module has one of
// them; kSoftware naming the pair if one of the result lies inside another.
std::vector<std::string> wrap_targets(std::span<const Module> modules, const WrapRule& rule);

// Segments no parameter of which lies in a wrapped module: together they are the root group.
std::set<std::string> root_segments(const arch::ModelSpec& spec, const std::vector<std::string>& types,
                                    const std::set<std::string>& ignored);

}  // namespace sf::plan
