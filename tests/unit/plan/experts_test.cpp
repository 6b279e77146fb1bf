// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "plan/shadow_experts.h"

namespace sf::plan {
namespace {

arch::Experts experts_of(int64_t count, int64_t chosen, int64_t width) {
  arch::Experts e;
  e.count = count, e.chosen = chosen, e.width = width, e.normalise = true;
  return e;
}

// Forward and backward of one layer's experts. `trained`: the experts' weights, else only their input.
uint64_t peak_of(const arch::Experts& e, int64_t tokens, int64_t hidden, const Spread& spread, bool trained) {
  Tape tape;
  ShadowOps ops(tape);
  auto weight = [&](Shape shape) {
    return trained ? tape.leaf(std::move(shape), Dtype::kF32) : tape.borrowed(std::move(shape), Dtype::kF32);
  };
  Shade x = tape.leaf({tokens, hidden}, Dtype::kF32), router = weight({e.count, hidden});
  ShadowBank up(tape, ops, weight({e.count, 2 * e.width, hidden})), down(tape, ops, weight({e.count, hidden, e.width}));
  {
    Shade out = ShadowExperts{e, up, down}.mix(tape, ops, x, ops.linear(x, router), spread);
    tape.run_backward({out}, {tape.make(out.shape, out.type)});
  }
  return tape.peak();
}

// A router at random: each token chooses `chosen` different experts, some experts rather than others.
Spread drawn(const arch::Experts& e, int64_t tokens, uint64_t seed) {
  Rng rng(seed, "router");
  Spread spread(static_cast<size_t>(e.count));
  std::vector<size_t> order(spread.size());
  const float favour = static_cast<float>(seed % 5);
  for (int64_t token = 0; token < tokens; ++token) {
    std::vector<float> score(spread.size());
    for (size_t i = 0; i < score.size(); ++i)
      score[i] = rng.normal(static_cast<uint64_t>(token) * score.size() + i) + favour * rng.normal((1u << 30) + i);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, [&](size_t a, size_t b) { return score[a] > score[b]; });
    for (int64_t k = 0; k < e.chosen; ++k) ++spread[order[static_cast<size_t>(k)]];
  }
  return spread;
}

// Large and small experts, few tokens and many: gradients of weights or states of tokens are what counts.
TEST(Experts, NoRouterAsksForMoreThanTheWidestSpread) {
  for (auto [count, chosen, width, tokens] :
       {std::array<int64_t, 4>{8, 2, 32, 200}, {8, 2, 160, 12}, {16, 3, 48, 40}, {6, 1, 24, 90}, {4, 4, 16, 33}})
    for (bool trained : {false, true}) {
      const arch::Experts e = experts_of(count, chosen, width);
      uint64_t most = 0;
      for (const Spread& spread : widest_spreads(e, tokens))
        most = std::max(most, peak_of(e, tokens, 48, spread, trained));
      for (uint64_t seed = 0; seed < 100; ++seed) {
        const uint64_t peak = peak_of(e, tokens, 48, drawn(e, tokens, seed), trained);
        EXPECT_LE(peak, most + most / 128)  // with_margin
            << count << " experts of " << width << ", " << chosen << " chosen, " << tokens << " tokens, seed " << seed;
      }
    }
}

}  // namespace
}  // namespace sf::plan
