// SPDX-License-Identifier: Apache-2.0
#include "model/dspark.h"

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <string>

#include "ops/linear.h"
#include "ops/linear_distance.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

class Head {
 public:
  Head(const arch::Dspark& draft, const DsparkOptions& options, const Tensors& p, const Tensors& in)
      : d_(draft), o_(options), p_(p), in_(in) {}

  Tensors run() const {
    const at::Tensor &states = in_.at("states"), &slots = in_.at("label_slots");
    at::Tensor before;  // of every slot: the token before its label
    if (d_.rank > 0)
      before = at::embedding(p_.at("markov_head.markov_w1.weight"), tensor::beside(in_.at("token_ids"), states));
    const at::Tensor h = tensor::select(states, 0, slots), labels = in_.at("label_ids");
    std::vector<ops::LogitPart> parts{{h, p_.at(arch::kTargetHead)}};
    if (d_.rank > 0)
      parts.push_back({tensor::select(bias_input(states, before), 0, slots), p_.at("markov_head.markov_w2.weight")});
    const at::Tensor weights = in_.at("slot_weights").index_select(0, in_.at("label_offsets"));
    const ops::LinearDistance judged =
        ops::linear_distance(parts, {labels, weights.mul(o_.ce_alpha), weights.mul(o_.l1_alpha),
                                     o_.asks_teacher() ? tensor::beside(teacher_states(), h) : at::Tensor()});
    at::Tensor confidence;
    if (d_.confidence)
      confidence = tensor::on_host(confidence_of(h, before.defined() ? tensor::select(before, 0, slots) : before));
    return sum_up(judged, weights, confidence);
  }

 private:
  at::Tensor project(const at::Tensor& x, const std::string& module) const {
    return ops::linear(x, p_.at(module + ".weight"), p_.at(module + ".bias"));
  }

  // What w2 turns into the bias of every slot, [M, rank].
  at::Tensor bias_input(const at::Tensor& h, const at::Tensor& e) const {
    if (d_.markov == arch::Markov::kVanilla) return e;
    if (d_.markov == arch::Markov::kGated)
      return at::sigmoid(project(at::cat({h, e}, 1), "markov_head.gate_proj")).mul(e);
    at::Tensor hidden = h.view({-1, d_.block, d_.hidden}), token = e.view({-1, d_.block, d_.rank});
    at::Tensor state = at::zeros({hidden.size(0), d_.rank}, e.options());
    std::vector<at::Tensor> outs;
    for (int64_t k = 0; k < d_.block; ++k) {
      at::Tensor joined = at::cat({state, token.select(1, k), hidden.select(1, k)}, 1);
      std::vector<at::Tensor> z = project(joined, "markov_head.joint_proj").chunk(3, 1);
      at::Tensor gate = at::sigmoid(z[0]);
      state = gate.mul(state).add(gate.neg().add(1).mul(at::tanh(z[1])));
      outs.push_back(at::tanh(z[2]));
    }
    return at::stack(outs, 1).view({-1, d_.rank});
  }

  // The target's normed state at the index before each label, in the draft's type.
  at::Tensor teacher_states() const {
    const at::Tensor &states = in_.at("final_norm"), &blocks = in_.at("blocks");
    const int64_t *slot = in_.at("label_slots").const_data_ptr<int64_t>(), *block = blocks.const_data_ptr<int64_t>();
    at::Tensor rows = at::empty({in_.at("label_slots").size(0)}, at::kLong);
    for (int64_t n = 0; n < rows.size(0); ++n) {
      const int64_t* at = block + 2 * (slot[n] / d_.block);
      rows.mutable_data_ptr<int64_t>()[n] = at[0] * states.size(1) + at[1] + slot[n] % d_.block;
    }
    return states.reshape({-1, states.size(2)}).index_select(0, rows);
  }

  at::Tensor confidence_of(const at::Tensor& h, const at::Tensor& e) const {
    at::Tensor read = d_.confidence_with_markov ? at::cat({h, e}, 1) : h;
    return project(read, "confidence_head.proj").to(at::kFloat).squeeze(1);
  }

  Tensors sum_up(const ops::LinearDistance& judged, const at::Tensor& weights, const at::Tensor& confidence) const {
    const at::Tensor &ce = judged.nll, &l1 = judged.l1;
    const at::Tensor accepted = l1.mul(-0.5).add(1).clamp(0, 1);
    at::Tensor bce = at::zeros_like(ce), distance = bce, loss = judged.loss;
    if (confidence.defined() && o_.confidence_alpha != 0) {
      bce = at::binary_cross_entropy_with_logits(confidence, accepted, {}, {}, 0);
      distance = at::sigmoid(confidence.detach()).sub(accepted).abs();
      loss = loss.add(tensor::beside(bce.mul(weights).sum().mul(o_.confidence_alpha), loss));
    }
    const at::Tensor each = ce.mul(o_.ce_alpha).add(l1.mul(o_.l1_alpha)).add(bce.detach().mul(o_.confidence_alpha));
    const at::Tensor correct = judged.argmax.eq(in_.at("label_ids")).to(at::kFloat);
    at::Tensor agreement = at::zeros_like(ce), top = agreement;
    if (o_.asks_teacher()) agreement = judged.argmax.eq(judged.teacher_argmax).to(at::kFloat), top = judged.top;
    const at::Tensor columns =
        at::stack({ce, correct, l1, bce, distance, agreement, judged.teacher_top, top, accepted, each.mul(weights)}, 1)
            .detach()
            .contiguous();
    return {{"loss", loss}, {"slot_sums", by_slot(columns)}};
  }

  // Labels of a block are its first slots, in order: a product of acceptances runs along them.
  at::Tensor by_slot(const at::Tensor& columns) const {
    at::Tensor sums = at::zeros({d_.block, kDsparkSums}, at::kDouble);
    const float* from = columns.const_data_ptr<float>();
    double product = 1;
    for (int64_t n = 0; n < columns.size(0); ++n, from += kDsparkSums) {
      int64_t k = in_.at("label_offsets").const_data_ptr<int64_t>()[n];
      product = (k == 0 ? 1 : product) * static_cast<double>(from[kTau]);
      double* to = sums.mutable_data_ptr<double>() + kDsparkSums * k;
      for (int64_t c = 0; c < kDsparkSums; ++c) to[c] += c == kTau ? product : static_cast<double>(from[c]);
    }
    return sums;
  }

  const arch::Dspark& d_;
  const DsparkOptions& o_;
  const Tensors &p_, &in_;
};

void fill(Segment& segment, const arch::Dspark& draft, const DsparkOptions& options) {
  segment.forward = [draft, options](const Tensors& p, const Tensors& in) { return Head(draft, options, p, in).run(); };
}

}  // namespace

std::vector<Segment> dspark_segments(const arch::Dspark& draft, bool tied, const DsparkOptions& options) {
  return block_segments(arch::describe_training(draft, tied), draft, kDsparkLabels,
                        {[=](Segment& segment) { fill(segment, draft, options); }, {}});
}

}  // namespace sf::model
