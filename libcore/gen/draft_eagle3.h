// SPDX-License-Identifier: Apache-2.0
// The EAGLE3 draft for inference (models_text_scoring 7.3, eagle_dflash 1.1-1.5).
//
// Alignment: entry t of the draft's cache comes from the feature of token t and the embedding of token t+1; its output
// predicts token t+2. Further draft steps feed the output back in place of the feature that is not known yet; entries
// made so are dropped after verification and made again from the target's features.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "arch/eagle3.h"
#include "gen/block.h"
#include "gen/drafter.h"
#include "gen/target.h"

namespace sf::gen {

class Eagle3Draft : public Drafter {
 public:
  // The embedding is the target's unless the checkpoint holds its own. kProtocol if the draft was made for another
  // geometry; kData for missing tensors or a draft vocabulary (d2t, t2d) that is not an ascending subset of the
  // target's.
  static Eagle3Draft load(const ckpt::Checkpoint& checkpoint, const Target& target);
  // `offsets`: d2t (target id = i + offsets[i]). `target` must outlive the draft.
  Eagle3Draft(const arch::Eagle3& draft, const Weights& weights, std::span<const int64_t> offsets,
              const Target& target);

  const arch::Eagle3& shape() const { return draft_; }
  std::span<const int64_t> capture_layers() const override { return draft_.capture_layers; }
  std::span<const int32_t> target_ids() const { return target_ids_; }  // of each draft id, ascending
  Cache make_cache(int64_t capacity) const override;
  void feed(Seats seats) override;
  int64_t look_ahead(const Proposals& proposals) const override;
  void propose(Seats seats, int64_t count, const Picker& picker) override;
  void grow(Seats seats, const Proposals& proposals) override;

  // Captured states of the three layers, [rows, Ht] each -> what a first step reads in place of its own output [rows,
  // H].
  at::Tensor fuse(std::span<const at::Tensor> captured) const;
  // One step over parts (ids: the tokens *after* those the features belong to), `carried` [rows, H] from fuse() or from
  // the step before -> [rows, H], to be carried on.
  at::Tensor forward(std::span<const Part> parts, const at::Tensor& carried);
  at::Tensor scores(const at::Tensor& carried) const;          // fp32 [rows, draft vocabulary]
  std::vector<int32_t> best(const at::Tensor& carried) const;  // target ids; the lowest wins a tie

 private:
  at::Tensor take(Seats seats);  // their features -> the last output of each, [seats, H]
  at::Tensor normed(const at::Tensor& carried) const;
  at::Tensor embed(std::span<const int32_t> ids) const;

  arch::Eagle3 draft_;
  const Target& target_;
  std::shared_ptr<const model::Rotary> rotary_;
  std::vector<int32_t> target_ids_;
  std::optional<Block> block_;
  ops::PackedLinear fc_, head_;
  at::Tensor own_table_, input_norm_, hidden_norm_, norm_;
  std::vector<at::Tensor> fc_norms_;
};

std::unique_ptr<Drafter> open_eagle3(const ckpt::Checkpoint&, const Target&, const DrafterOptions&);

}  // namespace sf::gen
