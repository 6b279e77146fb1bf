// SPDX-License-Identifier: Apache-2.0
#include "model/dflash2.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/linear.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

at::Tensor around(const arch::Dflash2& d, const Tensors& p, const std::string& module, const at::Tensor& x,
                  const Sublayer& sublayer) {
  const at::Tensor& base = p.at(module + "base_kernel");
  at::Tensor added =
      ops::linear(x, p.at(module + "kernel_projection.weight")).view({x.size(0), 2, d.taps, d.hidden / d.group});
  at::Tensor inner = sublayer(block_convolution(x, base.select(0, 0), added.select(1, 0), d.block));
  return block_convolution(inner, base.select(0, 1), added.select(1, 1), d.block);
}

class Head {
 public:
  Head(const arch::Dflash2& draft, const Dflash2Options& options, const Tensors& p, const Tensors& in)
      : d_(draft), o_(options), p_(p), in_(in) {}

  Tensors run() const {
    const at::Tensor &h = in_.at("states"), &codes = p_.at("candidate_selector.predecessor_codebook");
    at::Tensor read = o_.selector_stop_gradient ? h.detach() : h;
    at::Tensor ids = in_.at("token_ids").index_select(0, in_.at("label_slots").sub(1));
    at::Tensor before = at::embedding(codes, tensor::beside(ids, codes));
    at::Tensor query = before.mul(ops::linear(read, p_.at("candidate_selector.hidden_projection.weight")));
    auto judge = [d = d_, stop = o_.selector_stop_gradient](const std::vector<at::Tensor>& rows,
                                                            const std::vector<at::Tensor>& whole) {
      return judged(d, stop, rows, whole);
    };
    std::vector<at::Tensor> found =
        in_slices({h, tensor::beside(in_.at("label_ids"), h), query},
                  {p_.at(arch::kTargetHead), p_.at("candidate_selector.successor_codebook")}, o_.slice, judge);
    return sum_up(found[0], found[1], found[2]);
  }

 private:
  // Per label: cross-entropy, the selector's (0 where the label is no candidate), and right, present, chosen.
  static std::vector<at::Tensor> judged(const arch::Dflash2& d, bool stop, const std::vector<at::Tensor>& rows,
                                        const std::vector<at::Tensor>& whole) {
    at::Tensor z = ops::linear(rows[0], whole[0]).to(at::kFloat).mul(d.output_multiplier);
    if (d.softcap > 0) z = at::tanh(z.div(d.softcap)).mul(d.softcap);
    at::Tensor label = rows[1].unsqueeze(1), unary = at::log_softmax(z, 1).gather(1, label).squeeze(1).neg();
    auto [values, ids] = at::topk(stop ? z.detach() : z, d.top_k, 1);
    at::Tensor codes = whole[1].index_select(0, ids.reshape({-1})).view({ids.size(0), d.top_k, d.rank});
    at::Tensor scores = values.add(codes.mul(rows[2].unsqueeze(1)).sum(2, false, at::kFloat));
    at::Tensor hit = ids.eq(label), present = hit.any(1);
    at::Tensor log_q = at::log_softmax(scores, 1).masked_fill(hit.logical_not(), 0).sum(1);
    at::Tensor chosen = ids.gather(1, scores.argmax(1, true)).eq(label).squeeze(1);
    at::Tensor measures = at::stack({z.argmax(1).eq(rows[1]), present, chosen}, 1).to(at::kFloat);
    return {unary, log_q.neg(), measures.detach()};
  }

  Tensors sum_up(const at::Tensor& unary, const at::Tensor& selector, const at::Tensor& measures) const {
    const at::Tensor& slots = in_.at("label_slots");
    auto count = static_cast<size_t>(unary.size(0));
    at::Tensor nll = tensor::on_host(unary.detach()).contiguous();
    std::vector<double> own = dpace_weights(o_.slots, d_.block, {slots.const_data_ptr<int64_t>(), count},
                                            {nll.const_data_ptr<float>(), count});
    at::Tensor weights = in_.at("slot_weights").index_select(0, in_.at("label_offsets"));
    for (size_t n = 0; n < count; ++n) {
      float& weight = weights.mutable_data_ptr<float>()[n];
      weight = static_cast<float>(weight * own[n]);
    }
    at::Tensor weighted =
        unary.add(selector.mul(tensor::beside(in_.at("selector_share"), selector))).mul(tensor::beside(weights, unary));
    at::Tensor columns = at::stack({unary.detach(), measures.select(1, 0), selector.detach(), measures.select(1, 1),
                                    measures.select(1, 2), weighted.detach()},
                                   1)
                             .contiguous();
    return {{"loss", weighted.sum()}, {"slot_sums", by_slot(tensor::on_host(columns))}};
  }

  at::Tensor by_slot(const at::Tensor& columns) const {
    at::Tensor sums = at::zeros({d_.block, kDflash2Sums}, at::kDouble);
    const int64_t* slot = in_.at("label_slots").const_data_ptr<int64_t>();
    auto column = columns.accessor<float, 2>();
    bool oracle = true, chosen = true;
    for (int64_t n = 0; n < columns.size(0); ++n) {
      if (n == 0 || slot[n] / d_.block != slot[n - 1] / d_.block) oracle = chosen = true;
      oracle = oracle && column[n][3] > 0, chosen = chosen && column[n][4] > 0;
      double* to = sums.mutable_data_ptr<double>() + kDflash2Sums * (slot[n] % d_.block);
      for (int c = 0; c < 5; ++c) to[c] += static_cast<double>(column[n][c]);
      to[kOracleReached] += oracle;
      to[kChosenReached] += chosen;
      to[kDflash2Loss] += static_cast<double>(column[n][5]);
    }
    return sums;
  }

  const arch::Dflash2& d_;
  const Dflash2Options& o_;
  const Tensors &p_, &in_;
};

void fill(Segment& segment, const arch::Dflash2& draft, const Dflash2Options& options) {
  segment.forward = [draft, options](const Tensors& p, const Tensors& in) { return Head(draft, options, p, in).run(); };
}

}  // namespace

at::Tensor block_convolution(const at::Tensor& y, const at::Tensor& base, const at::Tensor& added, int64_t block) {
  const int64_t taps = base.size(0), channels = y.size(1), groups = added.size(2), count = y.size(0) / block;
  SF_ASSERT(y.dim() == 2 && y.size(0) % block == 0 && base.size(1) == channels && channels % groups == 0);
  SF_ASSERT(added.size(0) == y.size(0) && added.size(1) == taps);
  at::Tensor slots = y.view({count, block, groups, channels / groups}), out;
  for (int64_t t = 0; t < std::min(taps, block); ++t) {
    at::Tensor own = added.select(1, t).view({count, block, groups, 1});
    at::Tensor kernel = base.select(0, t).view({1, 1, groups, channels / groups}).add(own);
    at::Tensor term = kernel.narrow(1, t, block - t).mul(slots.narrow(1, 0, block - t));
    if (t > 0) term = at::cat({at::zeros({count, t, groups, channels / groups}, y.options()), term}, 1);
    out = out.defined() ? out.add(term) : term;
  }
  return out.reshape(y.sizes());
}

std::vector<Segment> dflash2_segments(const arch::Dflash2& draft, bool tied, const Dflash2Options& options) {
  BlockFamily family;
  family.fill = [=](Segment& segment) { fill(segment, draft, options); };
  family.around = [draft](const Tensors& p, const std::string& module, const at::Tensor& x, const Sublayer& sublayer) {
    return around(draft, p, module, x, sublayer);
  };
  family.embedding_scale = draft.embedding_scale;
  return block_segments(arch::describe_training(draft, tied), draft, {}, family);
}

}  // namespace sf::model
