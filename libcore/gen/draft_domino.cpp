// SPDX-License-Identifier: Apache-2.0
// Domino for inference: slots beyond the first are corrected by a recurrent state over the tokens proposed so far
// (eagle_dflash 4.1).
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <string>

#include "arch/domino.h"
#include "gen/draft_blocks.h"

namespace sf::gen {
namespace {

class DominoDraft : public BlockDrafter {
 public:
  DominoDraft(const arch::Domino& draft, const Weights& weights, const Target& target)
      : BlockDrafter(draft, weights, target), draft_(draft) {
    auto matrix = [&](const char* name, int64_t out, int64_t in) {
      return weights.pack(std::array<std::string, 1>{name}, std::array{out}, in);
    };
    input_ = matrix("prefix_gru.weight_ih_l0", 3 * draft.state, draft.hidden);
    again_ = matrix("prefix_gru.weight_hh_l0", 3 * draft.state, draft.state);
    inner_ = matrix("embed_proj.0.weight", draft.projection, draft.hidden + draft.state);
    outer_ = matrix("embed_proj.2.weight", draft.vocab, draft.projection);
  }

 private:
  // The state behind one more token; torch's gates: reset, update, new.
  at::Tensor read(const at::Tensor& state, int32_t token) const {
    const std::vector<at::Tensor> x = input_.apply(target().embed(std::span(&token, 1))).chunk(3, 1);
    const std::vector<at::Tensor> h = again_.apply(state).chunk(3, 1);
    const at::Tensor reset = at::sigmoid(x[0].add(h[0])), update = at::sigmoid(x[1].add(h[1]));
    const at::Tensor fresh = at::tanh(x[2].add(reset.mul(h[2])));
    return update.neg().add(1).mul(fresh).add(update.mul(state));
  }

  void walk(Seat& seat, const at::Tensor& states, const at::Tensor& logits, int64_t count,
            const Picker& picker) const override {
    at::Tensor memory = read(at::zeros({1, draft_.state}, states.options()), seat.sequence.last());
    const int64_t first = draft_.shift_label ? 0 : 1;
    for (int64_t k = first; k < std::min(count + first, draft_.block); ++k) {
      at::Tensor scores = logits.narrow(0, k, 1);
      if (k >= draft_.first_corrected()) {
        const at::Tensor joined = at::cat({states.narrow(0, k, 1), memory}, 1);
        scores = scores.add(outer_.apply_fp32(at::silu(inner_.apply(joined))));
      }
      picker.pick(seat, row_of(scores, 0));
      memory = read(memory, seat.proposed.back());
    }
  }

  arch::Domino draft_;
  ops::PackedLinear input_, again_, inner_, outer_;
};

}  // namespace

std::unique_ptr<Drafter> open_domino(const ckpt::Checkpoint& checkpoint, const Target& target, const DrafterOptions&) {
  return std::make_unique<DominoDraft>(arch::domino_from_config(checkpoint.config()),
                                       Weights(checkpoint, target.compute()), target);
}

}  // namespace sf::gen
