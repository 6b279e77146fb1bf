// SPDX-License-Identifier: Apache-2.0
// The families of drafts: one line each in drafts.cpp. What a run needs to know of a draft before it opens its
// mathematics.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/dflash.h"
#include "arch/model_spec.h"
#include "base/json.h"

namespace sf::arch {

// What a draft reads of its target: captured layers in our numbering, and the width of a state.
struct DraftInput {
  std::vector<int64_t> layers;
  int64_t vocab = 0, hidden = 0;
};

// What a draft proposes for one verification: up to `depth` tokens one behind the other, or with `nodes` a tree of that
// many tokens at most, `depth` levels deep, of which each level's `width` likeliest get `width` children each.
struct Proposals {
  int64_t depth = 3, nodes = 0, width = 8;
  bool branch() const { return nodes > 0; }
};

struct DraftFamily {
  std::string_view name;          // the verb that trains it
  std::string_view architecture;  // in config.json
  // The form of its samples, named after the family that asked for it first; families of one form share features.
  // "dflash": captured states · "dspark": and the target's last normed state · "eagle3": and its best ids and their
  // log-sum-exp.
  std::string_view features;
  // The config.json of the same draft with its parameters stored as `stored`: every field, rotary in both schemas.
  Json (*rewrite)(const Json& config, Dtype stored);
  DraftInput (*input)(const Json& config);    // kConfig if config.json is not of this family, or names no layers
  ModelSpec (*describe)(const Json& config);  // of a draft's own parameters
  // For training; `tied`: the target's head is an alias of its embedding.
  ModelSpec (*describe_training)(const Json& config, bool tied);
  Dflash (*blocks)(const Json& config);          // what it is built on; null: it is not drawn behind anchors
  bool (*judges)(const Json& config) = nullptr;  // has a head that says how likely a proposal is accepted; null: none

  bool final_norm() const { return features != "dflash"; }
  bool teacher() const { return features == "eagle3"; }
  bool branches() const { return features == "eagle3"; }  // its proposals may form a tree
};

std::span<const DraftFamily> draft_families();
// Their names in a row, of all or of those whose proposals may branch: "eagle3, peagle".
std::string draft_names(bool branching = false);
// kConfig naming the known ones.
const DraftFamily& draft_family_named(std::string_view name);
// By the architecture that config.json names; null for a target's or an unknown one. EAGLE3's may name none.
const DraftFamily* find_draft_family(const Json& config);
// The same; kConfig naming the known architectures.
const DraftFamily& draft_family(const Json& config);
// The same, and kConfig unless it is the family of this name.
const DraftFamily& draft_family(const Json& config, std::string_view name);

}  // namespace sf::arch
