// SPDX-License-Identifier: Apache-2.0
#include "model/domino.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "ops/linear.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

class Head {
 public:
  Head(const arch::Domino& draft, const DominoOptions& options, const Tensors& p, const Tensors& in)
      : d_(draft), o_(options), p_(p), in_(in) {}

  Tensors run() const {
    const at::Tensor &slots = in_.at("label_slots"), &states = in_.at("states");
    std::vector<at::Tensor> judged =
        in_slices({tensor::select(states, 0, slots), tensor::beside(in_.at("label_ids"), states),
                   tensor::select(projected(), 0, slots)},
                  {p_.at(arch::kTargetHead), p_.at("embed_proj.2.weight")}, o_.slice, judge);
    at::Tensor final = judged[0], base = judged[1], share = tensor::beside(in_.at("base_share"), states);
    at::Tensor weights = in_.at("slot_weights").index_select(0, in_.at("label_offsets"));
    at::Tensor weighted = final.mul(share.neg().add(1)).add(base.mul(share)).mul(tensor::beside(weights, final));
    at::Tensor right = judged[2];
    at::Tensor columns =
        at::stack({final, base, right.select(1, 0), right.select(1, 1), weighted}, 1).detach().contiguous();
    return {{"loss", weighted.sum()}, {"slot_sums", by_slot(tensor::on_host(columns))}};
  }

 private:
  const at::Tensor& weight(const std::string& name) const { return p_.at(name); }

  // States of the GRU behind every slot's token, [N, K, g]; torch's gates: reset, update, new.
  at::Tensor gru(const at::Tensor& tokens) const {
    at::Tensor inputs = ops::linear(tokens, weight("prefix_gru.weight_ih_l0"));
    at::Tensor state = at::zeros({tokens.size(0), d_.state}, tokens.options());
    std::vector<at::Tensor> states;
    for (int64_t k = 0; k < d_.block; ++k) {
      std::vector<at::Tensor> x = inputs.select(1, k).chunk(3, 1);
      std::vector<at::Tensor> h = ops::linear(state, weight("prefix_gru.weight_hh_l0")).chunk(3, 1);
      at::Tensor reset = at::sigmoid(x[0].add(h[0])), update = at::sigmoid(x[1].add(h[1]));
      at::Tensor fresh = at::tanh(x[2].add(reset.mul(h[2])));
      state = update.neg().add(1).mul(fresh).add(update.mul(state));
      states.push_back(state);
    }
    return at::stack(states, 1);
  }

  // What the last projection turns into the correction of every slot, [M, emb]; zero where there is none.
  at::Tensor projected() const {
    const at::Tensor& states = in_.at("states");
    int64_t first = d_.first_corrected(), count = d_.block - first;
    at::Tensor hidden = states.view({-1, d_.block, d_.hidden});
    at::Tensor memory = gru(in_.at("token_rows").view({-1, d_.block, d_.hidden}));
    at::Tensor joined =
        at::cat({hidden.narrow(1, first, count), memory.narrow(1, d_.shift_label ? first : first - 1, count)}, 2);
    at::Tensor inner = at::silu(ops::linear(joined, weight("embed_proj.0.weight")));
    at::Tensor none = at::zeros({hidden.size(0), first, d_.projection}, states.options());
    return at::cat({none, inner}, 1).view({-1, d_.projection});
  }

  static std::vector<at::Tensor> judge(const std::vector<at::Tensor>& rows, const std::vector<at::Tensor>& whole) {
    at::Tensor base = ops::linear(rows[0], whole[0]).to(at::kFloat), label = rows[1].unsqueeze(1);
    at::Tensor final = base.add(ops::linear(rows[2], whole[1]).to(at::kFloat));
    auto loss = [&](const at::Tensor& z) { return at::log_softmax(z, 1).gather(1, label).squeeze(1).neg(); };
    at::Tensor right = at::stack({final.argmax(1).eq(rows[1]), base.argmax(1).eq(rows[1])}, 1).to(at::kFloat);
    return {loss(final), loss(base), right.detach()};
  }

  at::Tensor by_slot(const at::Tensor& columns) const {
    at::Tensor sums = at::zeros({d_.block, kDominoSums}, at::kDouble);
    const int64_t* slot = in_.at("label_slots").const_data_ptr<int64_t>();
    auto column = columns.accessor<float, 2>();
    bool final = true, base = true;
    for (int64_t n = 0; n < columns.size(0); ++n) {
      if (n == 0 || slot[n] / d_.block != slot[n - 1] / d_.block) final = base = true;
      final = final && column[n][2] > 0, base = base && column[n][3] > 0;
      double* to = sums.mutable_data_ptr<double>() + kDominoSums * (slot[n] % d_.block);
      for (int c = 0; c < 4; ++c) to[c] += static_cast<double>(column[n][c]);
      to[kFinalReached] += final;
      to[kBaseReached] += base;
      to[kDominoLoss] += static_cast<double>(column[n][4]);
    }
    return sums;
  }

  const arch::Domino& d_;
  const DominoOptions& o_;
  const Tensors &p_, &in_;
};

void fill(Segment& segment, const arch::Domino& draft, const DominoOptions& options) {
  segment.forward = [draft, options](const Tensors& p, const Tensors& in) { return Head(draft, options, p, in).run(); };
}

}  // namespace

BlockLabels domino_labels(const arch::Domino& draft) {
  return {.next = draft.shift_label, .contiguous = false};
}

std::vector<Segment> domino_segments(const arch::Domino& draft, bool tied, const DominoOptions& options) {
  return block_segments(arch::describe_training(draft, tied), draft, domino_labels(draft),
                        {[=](Segment& segment) { fill(segment, draft, options); }, {}});
}

}  // namespace sf::model
