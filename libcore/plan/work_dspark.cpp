// SPDX-License-Identifier: Apache-2.0
// The shadow of model/dspark.cpp.
#include <string>

#include "plan/shadow_blocks.h"

namespace sf::plan {
namespace {

class DsparkWork {
 public:
  DsparkWork(const arch::Dspark& draft, const BlockRun& run, DsparkTerms terms)
      : d_(draft), run_(run), terms_(terms), chain_(draft, run), ops_(chain_.ops()) {}

  uint64_t run() {
    return chain_.work([&](const arch::Segment&) -> ShadowSegment {
      return {[this](const NamedShades& p, const NamedShades& in) { return head(p, in.at("states")); }, {}};
    });
  }

 private:
  Shade project(const NamedShades& p, const Shade& x, const std::string& module) {
    return ops_.linear(x, p.at(module + ".weight"), &p.at(module + ".bias"));
  }

  NamedShades head(const NamedShades& p, const Shade& states) {
    const int64_t labels = run_.batch.labels, slots = states.shape[0];
    Shade before;
    if (d_.rank > 0) before = ops_.embedding(p.at("markov_head.markov_w1.weight"), {slots});
    Shade h = ops_.index_select(states, labels);
    Shades rows{h}, whole{p.at(arch::kTargetHead)};
    if (d_.rank > 0) {
      rows.push_back(ops_.index_select(bias_input(p, states, before), labels));
      whole.push_back(p.at("markov_head.markov_w2.weight"));
    }
    if (terms_.teacher) rows.push_back(chain_.tape().make({labels, d_.hidden}, states.type));
    Shades judged = ops_.in_slices(rows, whole, kSlice, [this](const Shades& given) { return judge(given); });
    Shades sums{judged[0], judged[1]};
    if (d_.confidence) {
      Shade read = h;
      if (d_.confidence_with_markov)
        read = ops_.joined({h, ops_.index_select(before, labels)}, {labels, d_.hidden + d_.rank});
      Shade sure = ops_.wide(project(p, read, "confidence_head.proj"));
      if (terms_.confidence) sums.push_back(ops_.from_input(sure));
    }
    return chain_.sum_up(sums, kSums);
  }

  Shade bias_input(const NamedShades& p, const Shade& h, const Shade& e) {
    if (d_.markov == arch::Markov::kVanilla) return e;
    const int64_t slots = h.shape[0], blocks = slots / d_.block;
    if (d_.markov == arch::Markov::kGated) {
      Shade both = ops_.joined({h, e}, {slots, d_.hidden + d_.rank});
      return ops_.times(ops_.from_result(project(p, both, "markov_head.gate_proj")), e, e.shape);
    }
    Shade state = chain_.tape().make({blocks, d_.rank}, e.type);
    Shades outs;
    for (int64_t k = 0; k < d_.block; ++k) {
      Shade both = ops_.joined({state, ops_.narrow(e, {blocks, d_.rank}), ops_.narrow(h, {blocks, d_.hidden})},
                               {blocks, 2 * d_.rank + d_.hidden});
      Shades z = ops_.chunks(project(p, both, "markov_head.joint_proj"), 3);
      Shade gate = ops_.from_result(z[0]), rest = ops_.scaled(gate), fresh = ops_.from_result(z[1]);
      state = ops_.add(ops_.times(gate, state, state.shape), ops_.times(rest, fresh, state.shape));
      outs.push_back(ops_.from_result(z[2]));
    }
    return ops_.joined(outs, e.shape);
  }

  // rows: states, then what biases them and the teacher's states, if asked; whole: the head, then the bias's.
  Shades judge(const Shades& given) {
    const int64_t n = given[0].shape[0];
    const size_t rows = 1 + (d_.rank > 0) + terms_.teacher;
    const Shade& table = given[rows];
    Shade z = ops_.wide(ops_.linear(given[0], table));
    if (d_.rank > 0) z = ops_.add(z, ops_.wide(ops_.linear(given[1], given[rows + 1])));
    Shade log_p = ops_.from_result(z), ce = ops_.gather(log_p, 1), p = ops_.from_result(log_p);
    Shade l1 = chain_.tape().make({n}, Dtype::kF32), q;
    if (terms_.teacher) {
      q = ops_.from_result(ops_.wide(ops_.linear(given[rows - 1], table)));
      l1 = ops_.summed_to_wide(ops_.from_input(ops_.add(p, q), 1), {n, 1});
    }
    return {ce, l1, chain_.tape().make({n, 4}, Dtype::kF32)};
  }

  static constexpr int64_t kSlice = 128, kSums = 10;  // as model/slices.h, model/dspark.h
  const arch::Dspark& d_;
  const BlockRun& run_;
  DsparkTerms terms_;
  BlockChain chain_;
  ShadowOps& ops_;
};

}  // namespace

uint64_t dspark_work(const arch::Dspark& draft, const BlockRun& run, DsparkTerms terms) {
  return DsparkWork(draft, run, terms).run();
}

}  // namespace sf::plan
