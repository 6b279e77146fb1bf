// SPDX-License-Identifier: Apache-2.0
// What speculative decoding asks of a draft, whatever its family. A family is one file that implements it and one line
// in drafter.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "arch/drafts.h"
#include "ckpt/checkpoint.h"
#include "gen/sequence.h"
#include "gen/target.h"
#include "gen/tree.h"

namespace sf::gen {

// One sequence as a draft sees it.
struct Seat {
  Sequence sequence;
  Cache cache, draft_cache;          // the target's, the draft's
  int64_t fed = 0;                   // the draft knows the target's states of tokens 0 .. fed - 1
  std::vector<at::Tensor> features;  // one a captured layer: states [n, H] of the tokens from `fed` on
  std::vector<int32_t> proposed;
  std::vector<Law> laws;  // where the options ask for laws: the one each proposal was drawn from
  Tree tree;              // in place of `proposed`, where the proposals branch
};
using Seats = std::span<Seat* const>;

using arch::Proposals;

// Proposals as the options want them: the best one, or drawn from what the target's processors make of the scores.
class Picker {
 public:
  Picker(const Chooser& chooser, const Sampling& sampling) : chooser_(chooser), sampling_(sampling) {}
  bool needs_scores() const { return chooser_.needs_scores(); }
  // The seat's next proposal from a row of fp32 logits; `ids`: token of each score, ascending; empty: its index. kData
  // if no score is finite.
  void pick(Seat& seat, std::span<const float> scores, std::span<const int32_t> ids = {}) const;

 private:
  const Chooser& chooser_;
  const Sampling& sampling_;
};

struct DrafterOptions {
  double least_confidence = 0;  // of a proposal, where a draft says how likely it is accepted (DSpark)
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::span<const int64_t> capture_layers() const = 0;
  virtual Cache make_cache(int64_t capacity) const = 0;
  // Entries of its cache that one round of proposals takes beyond those of committed tokens.
  virtual int64_t look_ahead(const Proposals& proposals) const { return proposals.depth + 1; }

  // Whether it says how likely a proposal is accepted (DrafterOptions::least_confidence).
  virtual bool judges() const { return false; }

  // Takes every seat's features; each seat has some. Entry t belongs to token t.
  virtual void feed(Seats seats) = 0;
  // Takes every seat's features (all but those of its last token) and proposes up to `count` tokens behind that.
  virtual void propose(Seats seats, int64_t count, const Picker& picker) = 0;
  // The same as a tree, from the scores alone: nothing is drawn. kConfig for a family that cannot.
  virtual void grow(Seats seats, const Proposals& proposals);

  int64_t forwards() const { return forwards_; }

 protected:
  int64_t forwards_ = 0;
};

// `target` outlives the draft. kProtocol if the draft was made for another geometry; kData for missing tensors or a
// draft vocabulary (d2t, t2d) that is not an ascending subset of the target's; kConfig for an unknown family.
std::unique_ptr<Drafter> open_drafter(const ckpt::Checkpoint& checkpoint, const Target& target,
                                      const DrafterOptions& options = {});

// What families share.

// kProtocol naming what differs.
void check_geometry(const arch::DraftInput& draft, const arch::Decoder& target);
// Target ids of a draft vocabulary, ascending. kData if d2t (target id = i + offsets[i]) does not say so.
std::vector<int32_t> vocabulary_ids(std::span<const int64_t> offsets, int64_t draft_vocab, int64_t vocab);

// The features of all seats, taken: one forward's worth.
struct Fed {
  Fed(Seats seats, size_t layers);
  std::vector<at::Tensor> captured;  // [rows, H] of each layer, seat by seat
  std::vector<int64_t> first, rows;  // of each seat: its first token, how many
};

// Row `index` of fp32 [rows, width].
inline std::span<const float> row_of(const at::Tensor& scores, int64_t index) {
  return {scores.const_data_ptr<float>() + index * scores.stride(0), static_cast<size_t>(scores.size(1))};
}

}  // namespace sf::gen
