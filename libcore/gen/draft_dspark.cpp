// SPDX-License-Identifier: Apache-2.0
// DSpark for inference: slot k proposes the token behind its place, biased by the token before; where the confidence
// head expects too little, the proposal ends (eagle_dflash 3).
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <string>

#include "arch/dspark.h"
#include "gen/draft_blocks.h"

namespace sf::gen {
namespace {

class DsparkDraft : public BlockDrafter {
 public:
  DsparkDraft(const arch::Dspark& draft, const Weights& weights, const Target& target, double least)
      : BlockDrafter(draft, weights, target), draft_(draft), least_(least) {
    const int64_t r = draft.rank, h = draft.hidden;
    if (r > 0) {
      tokens_ = weights.get("markov_head.markov_w1.weight", {draft.vocab, r});
      bias_ = weights.pack(std::array<std::string, 1>{"markov_head.markov_w2.weight"}, std::array{draft.vocab}, r);
    }
    if (r > 0 && draft.markov == arch::Markov::kGated) joint_ = layer(weights, "markov_head.gate_proj", r, h + r);
    if (r > 0 && draft.markov == arch::Markov::kRnn)
      joint_ = layer(weights, "markov_head.joint_proj", 3 * r, 2 * r + h);
    if (draft.confidence)
      confidence_ = layer(weights, "confidence_head.proj", 1, h + (draft.confidence_with_markov ? r : 0));
  }

  bool judges() const override { return draft_.confidence; }

 private:
  struct Layer {
    ops::PackedLinear weight;
    at::Tensor bias;
    at::Tensor operator()(const at::Tensor& x) const { return weight.apply(x, bias); }
  };
  static Layer layer(const Weights& weights, const std::string& module, int64_t out, int64_t in) {
    return {weights.pack(std::array{module + ".weight"}, std::array{out}, in), weights.get(module + ".bias", {out})};
  }

  // What the bias of a slot is made of, [1, rank]; `state` belongs to the block.
  at::Tensor bias_input(const at::Tensor& h, const at::Tensor& e, at::Tensor& state) const {
    if (draft_.markov == arch::Markov::kVanilla) return e;
    if (draft_.markov == arch::Markov::kGated) return at::sigmoid(joint_(at::cat({h, e}, 1))).mul(e);
    const std::vector<at::Tensor> z = joint_(at::cat({state, e, h}, 1)).chunk(3, 1);
    const at::Tensor gate = at::sigmoid(z[0]);
    state = gate.mul(state).add(gate.neg().add(1).mul(at::tanh(z[1])));
    return at::tanh(z[2]);
  }

  bool hopeless(const at::Tensor& h, const at::Tensor& e) const {
    if (!draft_.confidence || least_ == 0) return false;
    const at::Tensor read = draft_.confidence_with_markov ? at::cat({h, e}, 1) : h;
    return at::sigmoid(confidence_(read).to(at::kFloat)).item<double>() < least_;
  }

  void walk(Seat& seat, const at::Tensor& states, const at::Tensor& logits, int64_t count,
            const Picker& picker) const override {
    at::Tensor state = at::zeros({1, draft_.rank}, states.options());
    int64_t previous = seat.sequence.last();
    for (int64_t k = 0; k < std::min(count, draft_.block); ++k) {
      const at::Tensor h = states.narrow(0, k, 1);
      at::Tensor e, scores = logits.narrow(0, k, 1);
      if (draft_.rank > 0) e = tokens_.narrow(0, previous, 1);
      if (hopeless(h, e)) return;
      if (draft_.rank > 0) scores = scores.add(bias_.apply_fp32(bias_input(h, e, state)));
      picker.pick(seat, row_of(scores, 0));
      previous = seat.proposed.back();
    }
  }

  arch::Dspark draft_;
  double least_;
  at::Tensor tokens_;
  ops::PackedLinear bias_;
  Layer joint_, confidence_;
};

}  // namespace

std::unique_ptr<Drafter> open_dspark(const ckpt::Checkpoint& checkpoint, const Target& target,
                                     const DrafterOptions& options) {
  return std::make_unique<DsparkDraft>(arch::dspark_from_config(checkpoint.config()),
                                       Weights(checkpoint, target.compute()), target, options.least_confidence);
}

}  // namespace sf::gen
