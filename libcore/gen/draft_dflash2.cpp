// SPDX-License-Identifier: Apache-2.0
// DFlash2 for inference: convolutions around the sublayers, and a selector that walks the best candidates of each slot
// from the token before (eagle_dflash 2b).
#include <ATen/ops/tanh.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "arch/dflash2.h"
#include "gen/draft_blocks.h"
#include "model/dflash2.h"

namespace sf::gen {
namespace {

class Dflash2Draft : public BlockDrafter {
 public:
  Dflash2Draft(const arch::Dflash2& draft, const Weights& weights, const Target& target)
      : BlockDrafter(draft, weights, target), draft_(draft) {
    embedding_scale = draft.embedding_scale;
    const int64_t added = 2 * draft.taps * (draft.hidden / draft.group);
    for (int64_t i = 0; i < draft.layers; ++i)
      for (const char* module : {"attention_conv.", "mlp_conv."}) {
        const std::string prefix = "layers." + std::to_string(i) + "." + module;
        filters_.push_back(
            {weights.get(prefix + "base_kernel", {2, draft.taps, draft.hidden}),
             weights.pack(std::array{prefix + "kernel_projection.weight"}, std::array{added}, draft.hidden)});
      }
    const std::string selector = "candidate_selector.";
    before_ = weights.get(selector + "predecessor_codebook", {draft.vocab, draft.rank});
    behind_ = weights.get(selector + "successor_codebook", {draft.vocab, draft.rank});
    query_ = weights.pack(std::array{selector + "hidden_projection.weight"}, std::array{draft.rank}, draft.hidden);
  }

 private:
  struct Filter {
    at::Tensor base;
    ops::PackedLinear added;
  };

  at::Tensor around(int64_t index, bool attention, const at::Tensor& x, const Sublayer& sublayer) const override {
    const Filter& filter = filters_[static_cast<size_t>(2 * index + (attention ? 0 : 1))];
    const at::Tensor added = filter.added.apply(x).view({x.size(0), 2, draft_.taps, draft_.hidden / draft_.group});
    auto side = [&](const at::Tensor& y, int64_t s) {
      return model::block_convolution(y, filter.base.select(0, s), added.select(1, s), draft_.block);
    };
    return side(sublayer(side(x, 0)), 1);
  }

  void walk(Seat& seat, const at::Tensor& states, const at::Tensor& logits, int64_t count,
            const Picker& picker) const override {
    at::Tensor z = logits.mul(draft_.output_multiplier);
    if (draft_.softcap > 0) z = at::tanh(z.div(draft_.softcap)).mul(draft_.softcap);
    const at::Tensor queries = query_.apply_fp32(states);
    int64_t previous = seat.sequence.last();
    for (int64_t k = 1; k <= std::min(count, draft_.block - 1); ++k) {
      const at::Tensor ids = std::get<0>(std::get<1>(at::topk(z.select(0, k), draft_.top_k)).sort());
      const at::Tensor query = queries.select(0, k).mul(before_.select(0, previous).to(at::kFloat));
      const at::Tensor edges = behind_.index_select(0, ids).to(at::kFloat).mul(query).sum(1);
      const at::Tensor scores = z.select(0, k).index_select(0, ids).add(edges).contiguous();
      const std::vector<int32_t> tokens(ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.size(0));
      picker.pick(seat, {scores.const_data_ptr<float>(), tokens.size()}, tokens);
      previous = seat.proposed.back();
    }
  }

  arch::Dflash2 draft_;
  std::vector<Filter> filters_;  // of each layer's attention and the rest
  at::Tensor before_, behind_;   // codebooks
  ops::PackedLinear query_;
};

}  // namespace

std::unique_ptr<Drafter> open_dflash2(const ckpt::Checkpoint& checkpoint, const Target& target, const DrafterOptions&) {
  return std::make_unique<Dflash2Draft>(arch::dflash2_from_config(checkpoint.config()),
                                        Weights(checkpoint, target.compute()), target);
}

}  // namespace sf::gen
