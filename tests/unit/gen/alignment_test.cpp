// SPDX-License-Identifier: Apache-2.0
// Training and inference must read the same features beside the same tokens at the same positions: an off-by-one would
// still train and still decode, only worse.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "../model/chain.h"
#include "gen/draft_eagle3.h"
#include "model/eagle3.h"
#include "tensor/compare.h"
#include "tiny.h"

namespace sf::gen {
namespace {

constexpr int64_t kLength = 14, kDraftVocab = 18;
constexpr int kUnroll = 3;

struct Both {
  Target target = tiny::target();
  arch::Eagle3 shape = tiny::draft_shape(target.decoder(), kDraftVocab);
  std::vector<int32_t> ids = tiny::ids(kLength, 5);
  States states;

  Both() {
    Cache cache = target.make_cache(kLength);
    states = target.prefill(cache, ids, shape.capture_layers);
  }

  // The trained form's states: hidden.0 .. hidden.T-1 and the place of each row.
  model::Tensors unrolled() const {
    model::Eagle3Vocabulary vocabulary{at::zeros({shape.vocab}, at::kBool), at::zeros({kDraftVocab}, at::kLong)};
    for (int64_t i = 0; i < kDraftVocab; ++i) {
      vocabulary.t2d.data_ptr<bool>()[2 * i + 1] = true;
      vocabulary.d2t.data_ptr<int64_t>()[i] = i + 1;
    }
    model::Tensors in{
        {"input_ids", at::zeros({1, kLength}, at::kLong)},          {"loss_mask", at::ones({1, kLength}, at::kLong)},
        {"target_top1", at::ones({1, kLength}, at::kLong)},  // in the draft's vocabulary: every label counts
        {"hidden_state", at::cat(states.captured, 1).unsqueeze(0)}, {"final_norm", states.final_norm.unsqueeze(0)},
        {"target_lse", at::zeros({1, kLength}, at::kFloat)},        {"lengths", at::full({1}, kLength, at::kLong)},
        {"step_weights", at::ones({kUnroll}, at::kFloat)}};
    std::copy(ids.begin(), ids.end(), in["input_ids"].data_ptr<int64_t>());
    model::Tensors all = tiny::weights(arch::describe_training(shape));
    all["embed_tokens.weight"] = tiny::weights(arch::describe(target.decoder())).at("model.embed_tokens.weight");
    return model::run_chain(model::eagle3_traced_segments(shape, vocabulary, {.unroll = kUnroll}), all, in);
  }
};

TEST(Alignment, InferenceDraftsWhatTrainingUnrolls) {
  Both both;
  const model::Tensors trained = both.unrolled();
  Eagle3Draft draft = tiny::draft(both.target, kDraftVocab);
  const at::Tensor fused = draft.fuse(both.states.captured);
  const at::Tensor active = trained.at("active").contiguous();
  int64_t compared = 0;
  for (int64_t row = 0; row < active.numel(); ++row) {
    const int64_t index = active.const_data_ptr<int64_t>()[row];
    // Features of tokens 0 .. index beside tokens 1 .. index + 1, then the draft's own output beside the next tokens.
    Cache cache = draft.make_cache(2 * kLength);
    const std::span<const int32_t> ids(both.ids);
    at::Tensor carried;
    for (int64_t step = 0; step < kUnroll && index + 1 + step < kLength; ++step) {
      const auto next = static_cast<size_t>(index + 1 + step);
      const Part first{&cache, ids.subspan(1, static_cast<size_t>(index) + 1)}, more{&cache, ids.subspan(next, 1)};
      if (step == 0)
        carried = draft.forward(std::span(&first, 1), fused.narrow(0, 0, index + 1)).narrow(0, index, 1);
      else
        carried = draft.forward(std::span(&more, 1), carried);
      const at::Tensor wanted = trained.at("hidden." + std::to_string(step)).narrow(0, row, 1);
      // Two fp32 forms of one block, step after step.
      EXPECT_LT(tensor::max_abs_difference(carried, wanted.detach()), 1e-4) << "index " << index << " step " << step;
      ++compared;
    }
  }
  EXPECT_GT(compared, 2 * kLength);
}

}  // namespace
}  // namespace sf::gen
