// SPDX-License-Identifier: Apache-2.0
// The P-EAGLE draft for inference (eagle_dflash 4.2): all proposals come from one forward, the first from the last
// known state, those behind it from masks at the next positions. Entries of its cache are aligned as EAGLE3's.
#pragma once
#include <memory>
#include <vector>

#include "arch/peagle.h"
#include "gen/drafter.h"

namespace sf::gen {

class PeagleDraft : public Drafter {
 public:
  // `offsets`: d2t. `target` must outlive the draft.
  PeagleDraft(const arch::Peagle& draft, const Weights& weights, std::span<const int64_t> offsets,
              const Target& target);

  std::span<const int64_t> capture_layers() const override { return draft_.capture_layers; }
  Cache make_cache(int64_t capacity) const override;
  void feed(Seats seats) override;
  void propose(Seats seats, int64_t count, const Picker& picker) override;
  void grow(Seats seats, const Proposals& proposals) override;

 private:
  // Takes the features, with `masks` masked rows behind each seat's own -> the last states of all of them, [rows, H].
  at::Tensor forward(Seats seats, const Fed& fed, int64_t masks);
  // Takes the features -> fp32 scores of `count` tokens behind each seat's last, seat by seat: [seats * count, V].
  at::Tensor scores(Seats seats, int64_t count);

  arch::Peagle draft_;
  const Target& target_;
  std::shared_ptr<const model::Rotary> rotary_;
  std::vector<int32_t> target_ids_;
  std::vector<Block> blocks_;
  std::vector<at::Tensor> input_norms_;
  ops::PackedLinear fc_, head_;
  at::Tensor table_, mask_hidden_, hidden_norm_, norm_;
};

std::unique_ptr<Drafter> open_peagle(const ckpt::Checkpoint&, const Target&, const DrafterOptions&);

}  // namespace sf::gen
