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
    const Shade h = ops_.index_select(states, labels);
    std::vector<std::pair<Shade, Shade>> parts{{h, p.at(arch::kTargetHead)}};
    if (d_.rank > 0)
      parts.push_back({ops_.index_select(bias_input(p, states, before), labels), p.at("markov_head.markov_w2.weight")});
    Shade teacher;
    if (terms_.teacher) teacher = chain_.tape().make({labels, d_.hidden}, states.type);
    Shade loss = ops_.linear_distance(parts, terms_.teacher);
    parts.clear(), teacher = {};
    if (d_.confidence) {
      Shade read = h;
      if (d_.confidence_with_markov)
        read = ops_.joined({h, ops_.index_select(before, labels)}, {labels, d_.hidden + d_.rank});
      Shade sure = ops_.wide(project(p, read, "confidence_head.proj"));
      if (terms_.confidence) loss = ops_.add(loss, ops_.summed(ops_.scaled(ops_.from_input(sure))));
    }
    Shade columns = chain_.tape().make({labels, kSums}, Dtype::kF32);
    return {{"loss", loss}, {"slot_sums", chain_.tape().make({d_.block, kSums}, Dtype::kF64)}};
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

  static constexpr int64_t kSums = 10;  // as model/dspark.h
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
