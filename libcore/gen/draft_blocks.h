// SPDX-License-Identifier: Apache-2.0
// Drafts of blocks for inference (eagle_dflash 2.7): behind the last token, whose states the target has not given yet,
// a block of masked slots reads the states of all tokens before it. Families differ in how they walk the block's states
// to tokens.
//
// Entry t of the draft's cache holds keys and values of the target's states of token t; those of a block are written
// behind them and dropped again.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arch/dflash.h"
#include "gen/drafter.h"

namespace sf::gen {

class BlockDrafter : public Drafter {
 public:
  std::span<const int64_t> capture_layers() const override { return draft_.capture_layers; }
  Cache make_cache(int64_t capacity) const override;
  int64_t look_ahead(const Proposals&) const override { return draft_.block; }
  void feed(Seats seats) override;
  void propose(Seats seats, int64_t count, const Picker& picker) override;

 protected:
  using Sublayer = std::function<at::Tensor(const at::Tensor& x)>;
  BlockDrafter(const arch::Dflash& draft, const Weights& weights, const Target& target);

  // Up to `count` proposals for one seat from its block: states [K, H] behind the last norm, logits fp32 [K, V] of the
  // target's head over them.
  virtual void walk(Seat& seat, const at::Tensor& states, const at::Tensor& logits, int64_t count,
                    const Picker& picker) const = 0;
  // Layer `index`'s sublayer, attention (or the other), on its normed input [rows, H]; the result joins the residual.
  virtual at::Tensor around(int64_t index, bool attention, const at::Tensor& x, const Sublayer& sublayer) const;

  const Target& target() const { return target_; }
  double embedding_scale = 1;  // of the slots' rows, as the first layer reads them

 private:
  at::Tensor states(Seats seats);

  arch::Dflash draft_;
  const Target& target_;
  std::shared_ptr<const model::Rotary> rotary_;
  std::vector<Block> blocks_;
  std::vector<at::Tensor> input_norms_;
  ops::PackedLinear fc_;
  at::Tensor hidden_norm_, norm_;
};

std::unique_ptr<Drafter> open_dflash(const ckpt::Checkpoint&, const Target&, const DrafterOptions&);
std::unique_ptr<Drafter> open_dflash2(const ckpt::Checkpoint&, const Target&, const DrafterOptions&);
std::unique_ptr<Drafter> open_dspark(const ckpt::Checkpoint&, const Target&, const DrafterOptions&);
std::unique_ptr<Drafter> open_domino(const ckpt::Checkpoint&, const Target&, const DrafterOptions&);

}  // namespace sf::gen
