// SPDX-License-Identifier: Apache-2.0
// The shadow of model/dflash2.cpp.
#include <algorithm>
#include <string>

#include "plan/shadow_blocks.h"

namespace sf::plan {
namespace {

class Dflash2Work {
 public:
  Dflash2Work(const arch::Dflash2& draft, const BlockRun& run, bool selector_alone)
      : d_(draft), run_(run), alone_(selector_alone), chain_(draft, run), ops_(chain_.ops()) {
    chain_.set_embedding_scaled(draft.embedding_scale != 1);
    chain_.set_around([this](const NamedShades& p, const std::string& module, const Shade& x, const auto& sublayer) {
      return around(p, module, x, sublayer);
    });
  }

  uint64_t run() {
    return chain_.work([&](const arch::Segment&) -> ShadowSegment {
      return {[this](const NamedShades& p, const NamedShades& in) { return head(p, in.at("states")); }, {}};
    });
  }

 private:
  Shade around(const NamedShades& p, const std::string& module, const Shade& x,
               const std::function<Shade(const Shade&)>& sublayer) {
    const int64_t groups = d_.hidden / d_.group;
    const Shade& base = p.at(module + "base_kernel");
    Shade added = ops_.linear(x, p.at(module + "kernel_projection.weight"));
    auto filter = [&](const Shade& y) {
      return convolution(y, ops_.narrow(base, {d_.taps, d_.hidden}),
                         ops_.narrow(added, {x.shape[0], d_.taps * groups}));
    };
    Shade inner = sublayer(filter(x));
    return filter(inner);
  }

  // model::block_convolution: by tap, a kernel of every slot, and what it multiplies.
  Shade convolution(const Shade& y, const Shade& base, const Shade& added) {
    const int64_t slots = y.shape[0], groups = d_.hidden / d_.group, count = slots / d_.block;
    Shade out;
    for (int64_t t = 0; t < std::min(d_.taps, d_.block); ++t) {
      Shade own = ops_.narrow(added, {slots, groups});
      Shade kernel = ops_.plus(ops_.narrow(base, {1, d_.hidden}), own, {slots, d_.hidden});
      Shape part{count * (d_.block - t), d_.hidden};
      Shade term = ops_.times(ops_.narrow(kernel, part), ops_.narrow(y, part), part);
      if (t > 0) term = ops_.joined({chain_.tape().make({count * t, d_.hidden}, y.type), term}, y.shape);
      out = t > 0 ? ops_.add(out, term) : term;
    }
    return out;
  }

  NamedShades head(const NamedShades& p, const Shade& h) {
    const int64_t labels = run_.batch.labels;
    Shade ids = chain_.integers(labels);
    Shade before = ops_.embedding(p.at("candidate_selector.predecessor_codebook"), {labels});
    Shade projected = ops_.linear(alone_ ? h.detached() : h, p.at("candidate_selector.hidden_projection.weight"));
    Shade query = ops_.times(before, projected, before.shape);
    Shades found = ops_.in_slices({h, query}, {p.at(arch::kTargetHead), p.at("candidate_selector.successor_codebook")},
                                  kSlice, [this](const Shades& given) { return judged(given); });
    return chain_.sum_up({found[0], found[1]}, kSums);
  }

  // rows: states, queries; whole: the head, the successors' codes.
  Shades judged(const Shades& given) {
    const Shade &codes = given[3], &query = given[1];
    const int64_t n = query.shape[0], k = d_.top_k;
    Shade z = ops_.scaled(ops_.wide(ops_.linear(given[0], given[2])));
    if (d_.softcap > 0) z = ops_.scaled(ops_.from_result(ops_.scaled(z)));
    Shade unary = ops_.gather(ops_.from_result(z), 1);
    Shade values = ops_.top_k(alone_ ? z.detached() : z, k);
    Shade chosen = ops_.index_select(codes, n * k);
    Shade products = ops_.times(chosen, query, {n * k, d_.rank});
    Shade scores = ops_.plus(values, ops_.summed_to_wide(products, {n, k}), {n, k});
    Shade selected = ops_.scaled(ops_.from_result(scores));
    return {unary, ops_.summed_to_wide(selected, {n, 1}), chain_.tape().make({n, 3}, Dtype::kF32)};
  }

  static constexpr int64_t kSlice = 128, kSums = 8;  // as model/slices.h, model/dflash2.h
  const arch::Dflash2& d_;
  const BlockRun& run_;
  bool alone_;
  BlockChain chain_;
  ShadowOps& ops_;
};

}  // namespace

uint64_t dflash2_work(const arch::Dflash2& draft, const BlockRun& run, bool selector_alone) {
  return Dflash2Work(draft, run, selector_alone).run();
}

}  // namespace sf::plan
