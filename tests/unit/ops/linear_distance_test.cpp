// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_distance.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "support.h"
#include "tensor/compare.h"
#include "tensor/threads.h"

namespace sf::ops {
namespace {

// A teacher that is sure of itself: no p lies so near its q that rounding decides on which side, where the slope jumps.
DistanceJudge judge_of(int64_t rows, int64_t width, int64_t vocab, at::ScalarType type = at::kFloat) {
  return {at::randint(vocab, {rows}), at::rand({rows}), at::rand({rows}), (at::randn({rows, width}) * 64).to(type)};
}

at::Tensor logits(const std::vector<LogitPart>& parts) {
  at::Tensor z = at::linear(parts[0].x, parts[0].w);
  for (size_t i = 1; i < parts.size(); ++i) z = z + at::linear(parts[i].x, parts[i].w);
  return z;
}

at::Tensor composed(const std::vector<LogitPart>& parts, const DistanceJudge& by) {
  const at::Tensor log_p = at::log_softmax(logits(parts), 1);
  at::Tensor loss = (log_p.gather(1, by.labels.unsqueeze(1)).squeeze(1).neg() * by.nll_weight).sum();
  if (by.states.defined()) {
    const at::Tensor q = at::softmax(at::linear(by.states, parts[0].w.detach()), 1);
    loss = loss + ((log_p.exp() - q).abs().sum(1) * by.l1_weight).sum();
  }
  return loss;
}

TEST(LinearDistance, ValuesAndGradientsEqualTheComposition) {
  for (auto [n, k, v] : {std::array<int64_t, 3>{7, 16, 33}, {1, 5, 4099}, {40, 33, 2048}}) {
    const at::Tensor x = leaf({n, k}), w = leaf({v, k}), y = leaf({n, 9}), u = leaf({v, 9});
    for (const std::vector<LogitPart>& parts : {std::vector<LogitPart>{{x, w}}, {{x, w}, {y, u}}}) {
      std::vector<at::Tensor> leaves{x, w};
      if (parts.size() > 1) leaves.insert(leaves.end(), {y, u});
      for (bool teacher : {false, true}) {
        DistanceJudge by = judge_of(n, k, v);
        if (!teacher) by.states = at::Tensor();
        expect_same([&] { return linear_distance(parts, by).loss; }, [&] { return composed(parts, by); }, leaves,
                    2e-4);  // sums of up to 40 losses of about 20
      }
    }
  }
}

TEST(LinearDistance, WhatIsToldOfEachRowEqualsTheFormula) {
  const std::vector<LogitPart> parts{{at::randn({9, 12}), at::randn({333, 12})},
                                     {at::randn({9, 4}), at::randn({333, 4})}};
  const DistanceJudge by = judge_of(9, 12, 333);
  const LinearDistance got = linear_distance(parts, by);
  const at::Tensor z = logits(parts), p = at::softmax(z, 1), t = at::linear(by.states, parts[0].w),
                   q = at::softmax(t, 1);
  EXPECT_TRUE(tensor::bit_equal(got.argmax, at::argmax(z, -1)));
  EXPECT_TRUE(tensor::bit_equal(got.teacher_argmax, at::argmax(t, -1)));
  EXPECT_LT(tensor::max_abs_difference(got.l1, (p - q).abs().sum(1)),
            2e-4);  // the teacher's logits, of 500, are 3e-5 apart
  EXPECT_LT(tensor::max_abs_difference(got.top, p.amax(1)), 1e-6);
  EXPECT_LT(tensor::max_abs_difference(got.teacher_top, q.amax(1)), 2e-4);
  const at::Tensor nll = at::log_softmax(z, 1).gather(1, by.labels.unsqueeze(1)).squeeze(1).neg();
  EXPECT_LT(tensor::max_abs_difference(got.nll, nll), 1e-5);  // values of about 10
}

TEST(LinearDistance, NeitherTheBlocksNorTheThreadsChangeARow) {
  // 131,072 words: 128 rows are a block, so 140 rows are two.
  const int64_t n = 140, k = 4, v = 131072;
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({n, k}).to(type).set_requires_grad(true), w = at::randn({v, k}).to(type);
    const DistanceJudge by = judge_of(n, k, v, type);
    const LinearDistance all = linear_distance({{x, w}}, by);
    const at::Tensor dx = gradients(all.loss, at::full({}, 1.0f), {x})[0];
    for (int64_t row = 0; row < n; row += 70) {
      auto cut = [&](const at::Tensor& t) { return t.detach().narrow(0, row, 70).contiguous(); };
      const at::Tensor part = cut(x).set_requires_grad(true);
      tensor::set_threads(row == 0 ? 1 : 2);
      const LinearDistance some =
          linear_distance({{part, w}}, {cut(by.labels), cut(by.nll_weight), cut(by.l1_weight), cut(by.states)});
      EXPECT_TRUE(some.nll.equal(cut(all.nll)));
      EXPECT_TRUE(some.l1.equal(cut(all.l1)));
      EXPECT_TRUE(gradients(some.loss, at::full({}, 1.0f), {part})[0].equal(cut(dx)));
    }
  }
}

TEST(LinearDistance, ALabelOutsideTheVocabularyIsRefused) {
  DistanceJudge by = judge_of(2, 6, 40);
  by.labels.mutable_data_ptr<int64_t>()[1] = 40;
  EXPECT_THROW(linear_distance({{at::randn({2, 6}), at::randn({40, 6})}}, by), Error);
}

TEST(LinearDistance, ANanReachesLossAndGradient) {
  at::Tensor x = at::randn({2, 6});
  x.mutable_data_ptr<float>()[7] = NAN;
  x.set_requires_grad(true);
  const LinearDistance got = linear_distance({{x, at::randn({40, 6})}}, judge_of(2, 6, 40));
  EXPECT_TRUE(std::isnan(got.loss.item<float>()));
  EXPECT_FALSE(gradients(got.loss, at::full({}, 1.0f), {x})[0].isfinite().all().item<bool>());
}

TEST(LinearDistance, Bf16StaysNearFp32) {
  auto narrow = [](at::IntArrayRef shape) { return (at::randn(shape) / 4).to(at::kBFloat16).set_requires_grad(true); };
  auto wide = [](const at::Tensor& t) { return t.detach().to(at::kFloat).set_requires_grad(true); };
  const at::Tensor x = narrow({30, 64}), w = narrow({500, 64}), y = narrow({30, 16}), u = narrow({500, 16});
  const std::vector<LogitPart> parts{{x, w}, {y, u}}, same{{wide(x), wide(w)}, {wide(y), wide(u)}};
  DistanceJudge by = judge_of(30, 64, 500, at::kBFloat16);
  const at::Tensor ours = linear_distance(parts, by).loss;
  by.states = by.states.to(at::kFloat);
  const at::Tensor want = composed(same, by);
  EXPECT_NEAR(ours.item<float>(), want.item<float>(), 2e-4);  // products of bf16 are exact in fp32; 30 losses of 8
  const auto got = torch::autograd::grad({ours}, {x, w, y, u});
  const auto wanted = torch::autograd::grad({want}, {same[0].x, same[0].w, same[1].x, same[1].w});
  // The logits' gradient is rounded to 8 bits once, the result once more: 2^-8 of the largest entries.
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got[i].scalar_type(), at::kBFloat16);
    EXPECT_LT(tensor::max_abs_difference(got[i].to(at::kFloat), wanted[i]), wanted[i].abs().max().item<float>() / 100);
  }
}

}  // namespace
}  // namespace sf::ops
