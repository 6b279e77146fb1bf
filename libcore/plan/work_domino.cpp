// SPDX-License-Identifier: Apache-2.0
// The shadow of model/domino.cpp.
#include <string>

#include "plan/shadow_blocks.h"

namespace sf::plan {
namespace {

class DominoWork {
 public:
  DominoWork(const arch::Domino& draft, const BlockRun& run)
      : d_(draft), run_(run), chain_(draft, run), ops_(chain_.ops()) {}

  uint64_t run() {
    return chain_.work([&](const arch::Segment&) -> ShadowSegment {
      return {[this](const NamedShades& p, const NamedShades& in) { return head(p, in); }, {}};
    });
  }

 private:
  NamedShades head(const NamedShades& p, const NamedShades& in) {
    const int64_t labels = run_.batch.labels;
    Shade h = ops_.index_select(in.at("states"), labels);
    Shade correction = ops_.index_select(projected(p, in.at("states"), in.at("token_rows")), labels);
    Shades judged = ops_.in_slices({h, correction}, {p.at(arch::kTargetHead), p.at("embed_proj.2.weight")}, kSlice,
                                   [this](const Shades& given) { return judge(given); });
    return chain_.sum_up({judged[0], judged[1]}, kSums);
  }

  Shade gru(const NamedShades& p, const Shade& tokens) {
    const int64_t blocks = run_.batch.blocks();
    const Shape step{blocks, d_.state};
    Shade inputs = ops_.linear(tokens, p.at("prefix_gru.weight_ih_l0"));
    Shade state = chain_.tape().make(step, tokens.type);
    Shades states;
    for (int64_t k = 0; k < d_.block; ++k) {
      Shades x = ops_.chunks(ops_.narrow(inputs, {blocks, 3 * d_.state}), 3);
      Shades h = ops_.chunks(ops_.linear(state, p.at("prefix_gru.weight_hh_l0")), 3);
      Shade reset = ops_.from_result(ops_.add(x[0], h[0])), update = ops_.from_result(ops_.add(x[1], h[1]));
      Shade fresh = ops_.from_result(ops_.add(x[2], ops_.times(reset, h[2], step)));
      Shade rest = ops_.scaled(update);
      state = ops_.add(ops_.times(rest, fresh, step), ops_.times(update, state, step));
      states.push_back(state);
    }
    return ops_.joined(states, {blocks * d_.block, d_.state});
  }

  Shade projected(const NamedShades& p, const Shade& states, const Shade& tokens) {
    const int64_t blocks = run_.batch.blocks(), corrected = blocks * (d_.block - d_.first_corrected());
    Shade memory = gru(p, tokens);
    Shade both = ops_.joined({ops_.narrow(states, {corrected, d_.hidden}), ops_.narrow(memory, {corrected, d_.state})},
                             {corrected, d_.hidden + d_.state});
    Shade inner = ops_.from_input(ops_.linear(both, p.at("embed_proj.0.weight")));
    Shade none = chain_.tape().make({blocks * d_.first_corrected(), d_.projection}, states.type);
    return ops_.joined({none, inner}, {blocks * d_.block, d_.projection});
  }

  // rows: states and corrections; whole: the head, and what turns a correction into logits.
  Shades judge(const Shades& given) {
    Shade base = ops_.wide(ops_.linear(given[0], given[2]));
    Shade final = ops_.add(base, ops_.wide(ops_.linear(given[1], given[3])));
    Shade measures = chain_.tape().make({base.shape[0], 2}, Dtype::kF32);
    return {ops_.gather(ops_.from_result(final), 1), ops_.gather(ops_.from_result(base), 1), measures};
  }

  static constexpr int64_t kSlice = 128, kSums = 7;  // as model/slices.h, model/domino.h
  const arch::Domino& d_;
  const BlockRun& run_;
  BlockChain chain_;
  ShadowOps& ops_;
};

}  // namespace

uint64_t domino_work(const arch::Domino& draft, const BlockRun& run) {
  return DominoWork(draft, run).run();
}

}  // namespace sf::plan
