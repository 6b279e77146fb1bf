// SPDX-License-Identifier: Apache-2.0
// DFlash for inference: slot k proposes the token at its own place (eagle_dflash 2.7).
#include <algorithm>

#include "gen/draft_blocks.h"

namespace sf::gen {
namespace {

class DflashDraft : public BlockDrafter {
 public:
  DflashDraft(const arch::Dflash& draft, const Weights& weights, const Target& target)
      : BlockDrafter(draft, weights, target) {}

 private:
  void walk(Seat& seat, const at::Tensor&, const at::Tensor& logits, int64_t count,
            const Picker& picker) const override {
    for (int64_t k = 1; k <= std::min(count, logits.size(0) - 1); ++k) picker.pick(seat, row_of(logits, k));
  }
};

}  // namespace

std::unique_ptr<Drafter> open_dflash(const ckpt::Checkpoint& checkpoint, const Target& target, const DrafterOptions&) {
  return std::make_unique<DflashDraft>(arch::dflash_from_config(checkpoint.config()),
                                       Weights(checkpoint, target.compute()), target);
}

}  // namespace sf::gen
