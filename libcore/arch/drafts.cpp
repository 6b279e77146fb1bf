// SPDX-License-Identifier: Apache-2.0
#include "arch/drafts.h"

#include <string>

#include "arch/dflash.h"
#include "arch/dflash2.h"
#include "arch/domino.h"
#include "arch/dspark.h"
#include "arch/eagle3.h"
#include "arch/peagle.h"
#include "base/error.h"

namespace sf::arch {
namespace {

template <auto kRead, auto kWrite>
Json rewritten(const Json& config, Dtype stored) {
  auto draft = kRead(config);
  draft.stored = stored;
  return kWrite(draft);
}

template <auto kRead>
DraftInput of_vocabulary(const Json& config) {
  auto draft = kRead(config);
  return {{draft.capture_layers.begin(), draft.capture_layers.end()}, draft.vocab, draft.target_hidden};
}
template <auto kRead>
DraftInput of_blocks(const Json& config) {
  Dflash draft = kRead(config);
  SF_CHECK(!draft.capture_layers.empty(), Exit::kConfig, "the draft's config.json names no target_layer_ids");
  return {draft.capture_layers, draft.vocab, draft.hidden};
}
template <auto kRead>
Dflash blocks_of(const Json& config) {
  return kRead(config);
}

template <auto kRead>
ModelSpec described(const Json& config) {
  return describe(kRead(config));
}
template <auto kRead>
ModelSpec in_training(const Json& config, bool) {
  return describe_training(kRead(config));
}
template <auto kRead>
ModelSpec blocks_in_training(const Json& config, bool tied) {
  auto draft = kRead(config);
  check_trainable(draft);
  return describe_training(draft, tied);
}

template <auto kRead, auto kWrite>
constexpr DraftFamily with_vocabulary(std::string_view name, std::string_view architecture, std::string_view features) {
  return {name,
          architecture,
          features,
          rewritten<kRead, kWrite>,
          of_vocabulary<kRead>,
          described<kRead>,
          in_training<kRead>,
          nullptr};
}
template <auto kRead, auto kWrite>
constexpr DraftFamily on_blocks(std::string_view name, std::string_view architecture, std::string_view features,
                                bool (*judges)(const Json&) = nullptr) {
  return {name,
          architecture,
          features,
          rewritten<kRead, kWrite>,
          of_blocks<kRead>,
          described<kRead>,
          blocks_in_training<kRead>,
          blocks_of<kRead>,
          judges};
}

bool has_confidence(const Json& config) {
  return dspark_from_config(config).confidence;
}

constexpr DraftFamily kFamilies[] = {
    with_vocabulary<eagle3_from_config, eagle3_to_config>("eagle3", kEagle3Architecture, "eagle3"),
    on_blocks<dflash_from_config, dflash_to_config>("dflash", kDflashArchitecture, "dflash"),
    on_blocks<dflash2_from_config, dflash2_to_config>("dflash2", kDflash2Architecture, "dflash"),
    on_blocks<dspark_from_config, dspark_to_config>("dspark", kDsparkArchitecture, "dspark", has_confidence),
    on_blocks<domino_from_config, domino_to_config>("domino", kDominoArchitecture, "dflash"),
    with_vocabulary<peagle_from_config, peagle_to_config>("peagle", kPeagleArchitecture, "eagle3"),
};

}  // namespace

std::span<const DraftFamily> draft_families() {
  return kFamilies;
}

std::string draft_names(bool branching) {
  std::string names;
  for (const DraftFamily& family : kFamilies)
    if (!branching || family.branches()) names += (names.empty() ? "" : ", ") + std::string(family.name);
  return names;
}

const DraftFamily& draft_family_named(std::string_view name) {
  for (const DraftFamily& family : kFamilies)
    if (family.name == name) return family;
  fail(Exit::kConfig, "draft algorithm \"{}\" is unknown; known: {}", name, draft_names());
}

const DraftFamily* find_draft_family(const Json& config) {
  std::string_view named = architecture_of(config);
  for (const DraftFamily& family : kFamilies)
    if (family.architecture == named) return &family;
  return named.empty() && config.is_object() && config.contains("draft_vocab_size") ? &kFamilies[0] : nullptr;
}

const DraftFamily& draft_family(const Json& config) {
  if (const DraftFamily* found = find_draft_family(config)) return *found;
  std::string known;
  for (const DraftFamily& family : kFamilies) known += (known.empty() ? "" : ", ") + std::string(family.architecture);
  fail(Exit::kConfig, "config.json: architecture \"{}\" is no draft's; known: {}", architecture_of(config), known);
}

const DraftFamily& draft_family(const Json& config, std::string_view name) {
  const DraftFamily& family = draft_family(config);
  SF_CHECK(family.name == name, Exit::kConfig, "config.json: architecture \"{}\" is of a {} draft, wanted a {} draft",
           family.architecture, family.name, name);
  return family;
}

}  // namespace sf::arch
