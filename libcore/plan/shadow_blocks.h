// SPDX-License-Identifier: Apache-2.0
// The shadow of model/block_backbone.cpp: what every draft of blocks computes, whatever its heads.
#pragma once
#include <functional>
#include <string>

#include "plan/shadow_ops.h"
#include "plan/work.h"

namespace sf::plan {

// What a family puts around a sublayer: `module` is the prefix of its parameters.
using ShadowAround = std::function<Shade(const NamedShades& p, const std::string& module, const Shade& x,
                                         const std::function<Shade(const Shade&)>& sublayer)>;

class BlockChain {
 public:
  // `run` and what it refers to outlive the chain.
  BlockChain(const arch::Dflash& draft, const BlockRun& run) : d_(draft), run_(run), ops_(tape_) {}

  // The family's own segments; those of the backbone are known.
  using Others = std::function<ShadowSegment(const arch::Segment& segment)>;
  uint64_t work(const Others& others);

  void set_around(ShadowAround around) { around_ = std::move(around); }
  void set_embedding_scaled(bool scaled) { embedding_scaled_ = scaled; }
  Tape& tape() { return tape_; }
  ShadowOps& ops() { return ops_; }
  Shade integers(int64_t count) { return tape_.make({count}, Dtype::kI64); }
  // What is left of a loss once every label's terms are there.
  NamedShades sum_up(const Shades& terms, int64_t columns);

 private:
  NamedShades blocks();
  NamedShades context(const NamedShades& p);
  ShadowSegment norm(const arch::Segment& segment);
  ShadowSegment own(const arch::Segment& segment, int64_t& layer);

  const arch::Dflash& d_;
  const BlockRun& run_;
  Tape tape_;
  ShadowOps ops_;
  ShadowAround around_;
  bool embedding_scaled_ = false;
};

}  // namespace sf::plan
