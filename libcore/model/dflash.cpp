// SPDX-License-Identifier: Apache-2.0
#include "model/dflash.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <string>

#include "base/error.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

// dpace_weights of one block: its labels are [begin, end) of all.
struct Block {
  const DflashOptions& options;
  int64_t block;
  std::span<const int64_t> slots;
  std::span<const float> nll;

  void weigh(size_t begin, size_t end, std::vector<double>& weights) const {
    std::vector<double> prefix(static_cast<size_t>(block), 1), mass(static_cast<size_t>(block) + 1, 0);
    for (size_t n = begin; n < end; ++n) {
      double p = std::exp(-static_cast<double>(nll[n]));
      prefix[offset(n)] = (1 - options.dpace_alpha) * p + options.dpace_alpha;
    }
    for (size_t k = 1; k < prefix.size(); ++k) prefix[k] *= prefix[k - 1];
    for (size_t n = begin; n < end; ++n) mass[offset(n)] = prefix[offset(n)];
    for (size_t k = prefix.size(); k-- > 0;) mass[k] += mass[k + 1];
    for (size_t n = begin; n < end; ++n) {
      double before = prefix[offset(n)], behind = mass[offset(n)];
      weights[n] = options.loss == SlotLoss::kDpace         ? behind
                   : options.loss == SlotLoss::kDpacePrefix ? before
                                                            : behind / before;
    }
  }
  size_t offset(size_t n) const { return static_cast<size_t>(slots[n] % block); }
};

Tensors loss(const arch::Dflash& draft, const DflashOptions& options, const Tensors& in) {
  const at::Tensor &nll = in.at("nll"), &offsets = in.at("label_offsets"), &slots = in.at("label_slots");
  at::Tensor right = tensor::on_host(in.at("top1")).eq(in.at("label_ids")), known = tensor::on_host(nll),
             sums = at::zeros({draft.block, 3}, at::kDouble);
  auto count = static_cast<size_t>(nll.size(0));
  std::span<const float> each(known.const_data_ptr<float>(), count);
  std::vector<double> own = dpace_weights(options, draft.block, {slots.const_data_ptr<int64_t>(), count}, each);
  at::Tensor weights = in.at("slot_weights").index_select(0, offsets);
  float* weight = weights.mutable_data_ptr<float>();
  for (size_t n = 0; n < count; ++n) {
    double* row = sums.mutable_data_ptr<double>() + 3 * offsets.const_data_ptr<int64_t>()[n];
    weight[n] = static_cast<float>(weight[n] * own[n]);
    row[0] += static_cast<double>(each[n]);
    row[1] += right.const_data_ptr<bool>()[n];
    row[2] += static_cast<double>(weight[n]) * static_cast<double>(each[n]);
  }
  return {{"loss", nll.mul(tensor::beside(weights, nll)).sum()}, {"slot_sums", sums}};
}

void fill(Segment& segment, const arch::Dflash& draft, const DflashOptions& options) {
  if (segment.name == "head")
    segment = vocabulary_head_segment(std::move(segment), options.head_chunk);
  else
    segment.forward = [draft, options](const Tensors&, const Tensors& in) { return loss(draft, options, in); };
}

}  // namespace

SlotLoss slot_loss_from_name(std::string_view name) {
  if (name == "dflash") return SlotLoss::kPlain;
  if (name == "dpace") return SlotLoss::kDpace;
  if (name == "dpace-cumulative-confidence-only") return SlotLoss::kDpacePrefix;
  if (name == "dpace-continuation-value-only") return SlotLoss::kDpaceSuffixOverPrefix;
  fail(Exit::kConfig,
       "training.loss_type \"{}\" is unknown; known: dflash, dpace, dpace-cumulative-confidence-only, "
       "dpace-continuation-value-only",
       name);
}

std::vector<double> dpace_weights(const DflashOptions& options, int64_t block, std::span<const int64_t> slots,
                                  std::span<const float> nll) {
  std::vector<double> weights(slots.size(), 1);
  if (options.loss == SlotLoss::kPlain) return weights;
  Block one{options, block, slots, nll};
  for (size_t begin = 0, end = 0; begin < slots.size(); begin = end) {
    while (end < slots.size() && slots[end] / block == slots[begin] / block) ++end;
    one.weigh(begin, end, weights);
  }
  return weights;
}

Segment vocabulary_head_segment(Segment segment, int64_t chunk) {
  segment.table = TableCall{TableCall::Kind::kHead, chunk};
  segment.forward = [chunk](const Tensors& p, const Tensors& in) {
    ops::HeadLoss out = ops::vocabulary_head(in.at("states"), p.at(arch::kTargetHead), in.at("label_ids"), chunk);
    return Tensors{{"nll", out.nll}, {"top1", out.top1}};
  };
  return segment;
}

std::vector<Segment> dflash_segments(const arch::Dflash& draft, bool tied, const DflashOptions& options) {
  return block_segments(arch::describe_training(draft, tied), draft, {},
                        {[=](Segment& segment) { fill(segment, draft, options); }, {}});
}

}  // namespace sf::model
