// SPDX-License-Identifier: Apache-2.0
// The shadow of model/dflash.cpp.
#include <algorithm>
#include <string>

#include "plan/shadow_blocks.h"

namespace sf::plan {
namespace {

constexpr int64_t kHeadChunk = TableUse{}.chunk;

class Heads {
 public:
  Heads(const arch::Dflash& draft, const BlockRun& run, BlockChain& chain) : d_(draft), run_(run), chain_(chain) {}

  ShadowSegment operator()(const arch::Segment& segment) {
    if (segment.name == "head") return head();
    return {[this](const auto&, const auto& in) { return loss(in.at("nll")); }, {}};
  }

 private:
  NamedShades judged(const Shade& nll) { return {{"nll", nll}, {"top1", chain_.integers(run_.batch.labels)}}; }
  NamedShades loss(const Shade& nll) {
    Shade right = chain_.tape().make({run_.batch.labels}, Dtype::kBool),
          sums = chain_.tape().make({d_.block, 3}, Dtype::kF64);
    Shade weights = chain_.tape().make({run_.batch.labels}, Dtype::kF32), weighed = chain_.ops().scaled(nll);
    return {{"loss", chain_.ops().summed(weighed)}, {"slot_sums", sums}};
  }

  ShadowSegment head() {
    std::string_view table = run_.spec.storage_of(arch::kTargetHead);
    auto same = [&](const Held& held) { return held.name == table && held.exchanged; };
    if (std::none_of(run_.plan.parameters.begin(), run_.plan.parameters.end(), same))
      return {[this](const auto&, const NamedShades& in) {
                return judged(chain_.ops().vocabulary_head(in.at("states"), d_.vocab, kHeadChunk));
              },
              {}};
    return {[this](const auto&, const NamedShades& in) {
              kept_ = chain_.ops().head_state(in.at("states"));
              return judged(chain_.ops().head_loss(kept_, d_.vocab, kHeadChunk));
            },
            [this](const NamedShades&) -> NamedShades {
              NamedShades out{{"states", chain_.ops().head_gradient(kept_)}};
              kept_.clear();
              return out;
            }};
  }

  const arch::Dflash& d_;
  const BlockRun& run_;
  BlockChain& chain_;
  Shades kept_;  // of the head, between its two passes over an exchanged table
};

}  // namespace

uint64_t dflash_work(const arch::Dflash& draft, const BlockRun& run) {
  BlockChain chain(draft, run);
  Heads heads(draft, run, chain);
  return chain.work([&](const arch::Segment& segment) { return heads(segment); });
}

}  // namespace sf::plan
