// SPDX-License-Identifier: Apache-2.0
#include "gen/drafter.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "gen/draft_blocks.h"
#include "gen/draft_eagle3.h"
#include "gen/draft_peagle.h"

namespace sf::gen {
namespace {

struct Line {
  std::string_view family;
  std::unique_ptr<Drafter> (*open)(const ckpt::Checkpoint&, const Target&, const DrafterOptions&);
};
constexpr Line kLines[] = {{"eagle3", open_eagle3}, {"dflash", open_dflash}, {"dflash2", open_dflash2},
                           {"dspark", open_dspark}, {"domino", open_domino}, {"peagle", open_peagle}};

}  // namespace

void Picker::pick(Seat& seat, std::span<const float> scores, std::span<const int32_t> ids) const {
  if (!needs_scores()) {
    auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    SF_CHECK(std::isfinite(scores[static_cast<size_t>(best)]), Exit::kData, "the draft's scores are not finite");
    seat.proposed.push_back(ids.empty() ? static_cast<int32_t>(best) : ids[static_cast<size_t>(best)]);
    return;
  }
  std::vector<int32_t> history(seat.sequence.ids().begin(), seat.sequence.ids().end());
  history.insert(history.end(), seat.proposed.begin(), seat.proposed.end());
  Law law = law_of(scores, sampling_, history, ids);
  seat.proposed.push_back(
      law.pick(chooser_.draws().draft(seat.sequence.sample(), seat.sequence.answered() + seat.proposed.size())));
  seat.laws.push_back(std::move(law));
}

void check_geometry(const arch::DraftInput& draft, const arch::Decoder& target) {
  auto same = [](std::string_view what, int64_t wanted, int64_t found) {
    SF_CHECK(wanted == found, Exit::kProtocol, "the draft was made for a target with {} {}, this one has {}", what,
             wanted, found);
  };
  same("vocabulary", draft.vocab, target.vocab);
  same("hidden size", draft.hidden, target.hidden);
  for (int64_t layer : draft.layers)
    SF_CHECK(layer >= 0 && layer <= target.layers, Exit::kProtocol,
             "the draft reads layer {} of a target with {} layers", layer, target.layers);
}

std::vector<int32_t> vocabulary_ids(std::span<const int64_t> offsets, int64_t draft_vocab, int64_t vocab) {
  SF_CHECK(static_cast<int64_t>(offsets.size()) == draft_vocab, Exit::kData,
           "d2t has {} entries, the draft vocabulary {} tokens", offsets.size(), draft_vocab);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const int64_t id = static_cast<int64_t>(i) + offsets[i];
    SF_CHECK(id >= 0 && id < vocab && (i == 0 || id > ids.back()), Exit::kData,
             "d2t[{}] leads to token {}: not above its predecessor's and below {}", i, id, vocab);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

Fed::Fed(Seats seats, size_t layers) {
  std::vector<std::vector<at::Tensor>> columns(layers);
  for (Seat* seat : seats) {
    SF_ASSERT(seat->features.size() == layers);
    seat->draft_cache.truncate(seat->fed);
    first.push_back(seat->fed);
    rows.push_back(seat->features.front().size(0));
    seat->fed += rows.back();
    for (size_t i = 0; i < layers; ++i) columns[i].push_back(std::move(seat->features[i]));
    seat->features.clear();
  }
  for (const std::vector<at::Tensor>& column : columns) captured.push_back(at::cat(column));
}

void Drafter::grow(Seats, const Proposals&) {
  fail(Exit::kConfig,
       "the proposals of this draft's family form a chain; speculation.tree_nodes wants a draft of {} (0: a chain)",
       arch::draft_names(true));
}

std::unique_ptr<Drafter> open_drafter(const ckpt::Checkpoint& checkpoint, const Target& target,
                                      const DrafterOptions& options) {
  const arch::DraftFamily& family = arch::draft_family(checkpoint.config());
  check_geometry(family.input(checkpoint.config()), target.decoder());
  for (const Line& line : kLines)
    if (line.family == family.name) return line.open(checkpoint, target, options);
  fail(Exit::kConfig, "{}: {} drafts are trained, not decoded", checkpoint.dir().string(), family.name);
}

}  // namespace sf::gen
