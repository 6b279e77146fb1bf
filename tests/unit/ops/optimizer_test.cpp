// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "ops/optimizer_kernels.h"
#include "sf_kernels/optimizer.h"

namespace sf::ops {
namespace {

std::vector<float> wild(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> out(n);
  for (float& x : out) {
    do {
      x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    } while (!std::isfinite(x));
  }
  return out;
}

double exact(const std::vector<float>& values) {
  SquareSum sum;
  sum.add(values);
  return sum.to_double();
}

TEST(SquareSum, SmallCasesAreExact) {
  EXPECT_EQ(exact({}), 0);
  EXPECT_EQ(exact({0.0f, -0.0f}), 0);
  EXPECT_EQ(exact({3.0f, -4.0f}), 25);
  EXPECT_EQ(exact({1.0f, 0x1p-20f}), 1 + 0x1p-40);
  EXPECT_EQ(exact({1.0f, 0x1p-27f}), 1);    // 2^-54: below half an ulp of 1
  EXPECT_EQ(exact({0x1p-140f}), 0x1p-280);  // a subnormal
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(exact({most}), static_cast<double>(most) * most);
  EXPECT_EQ(exact({most, most, most, most}), 4 * (static_cast<double>(most) * most));
}

TEST(SquareSum, RoundsOnceToNearestEven) {
  // 1 + 2^-53 is a tie and goes to even (1); anything more, however small, goes up.
  EXPECT_EQ(exact({1.0f, 0x1.6a09e6p-27f}), 1);      // a little below the tie
  std::vector<float> tie{1.0f, 0x1p-27f, 0x1p-27f};  // 1 + 2^-53 exactly
  EXPECT_EQ(exact(tie), 1);
  tie.push_back(0x1p-100f);
  EXPECT_EQ(exact(tie), 1 + 0x1p-52);
}

TEST(SquareSum, OrderAndPartitionDoNotMatter) {
  std::vector<float> values = wild(5000, 3);
  SquareSum whole;
  whole.add(values);
  std::shuffle(values.begin(), values.end(), std::mt19937(4));
  SquareSum parts;
  for (size_t i = 0; i < values.size();) {
    const size_t n = std::min<size_t>(values.size() - i, i % 97 + 1);
    SquareSum part;
    part.add(std::span(values).subspan(i, n));
    parts.add(part);
    i += n;
  }
  EXPECT_EQ(whole.limbs(), parts.limbs());
  EXPECT_EQ(whole.to_double(), parts.to_double());
}

TEST(SquareSum, LimbsOfRanksAddUp) {
  const std::vector<float> a = wild(300, 1), b = wild(200, 2);
  SquareSum one, two, both;
  one.add(a);
  two.add(b);
  both.add(a);
  both.add(b);
  auto limbs = one.limbs();
  for (size_t i = 0; i < limbs.size(); ++i) limbs[i] += two.limbs()[i];
  SquareSum reduced;
  reduced.set_limbs(limbs);
  EXPECT_EQ(reduced.to_double(), both.to_double());
  EXPECT_EQ(reduced.limbs(), both.limbs());
}

TEST(SquareSum, IsNearTheFp64SumOfOrdinaryValues) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0, 1e-3f);
  std::vector<float> values(200000);
  long double want = 0;
  for (float& x : values) x = normal(random), want += static_cast<long double>(x) * x;
  EXPECT_NEAR(exact(values) / static_cast<double>(want), 1, 1e-14);
}

// Blocks of like values take the fast form, those with a wider range or a tiny one the other; 4096 values are a block.
TEST(SquareSum, WhateverTheRangeTheLimbsAreThoseOfTheDefinition) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1);
  for (float scale : {1.0f, 3e-9f, 1e-22f, 1e-30f, 0x1p-140f, 0x1p125f}) {
    std::vector<float> values(9001);
    for (float& x : values) x = normal(random) * scale;
    values[17] = 0, values[4096] = scale * 0x1p-30f, values[5000] = scale * 0x1p-60f, values[9000] = -scale;
    std::array<int64_t, SquareSum::kLimbs> limbs{};
    EXPECT_EQ(kernels::reference::add_squares(values.data(), values.size(), limbs.data()), 0u);
    SquareSum sum, wanted;
    sum.add(values);
    wanted.set_limbs(limbs);
    EXPECT_EQ(sum.limbs(), wanted.limbs()) << scale;
  }
}

TEST(SquareSum, NonFiniteValuesAreCountedAndLeftOut) {
  SquareSum sum;
  sum.add(std::vector<float>{2, NAN, INFINITY, 1});
  EXPECT_EQ(sum.bad(), 2u);
  EXPECT_EQ(sum.to_double(), 5);
}

TEST(AdamW, AnElementDoesNotDependOnWhereItsIntervalBegins) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> p(500), g(500), m(500), v(500);
  for (auto* x : {&p, &g, &m}) std::generate(x->begin(), x->end(), [&] { return normal(random); });
  for (float& x : v) x = std::abs(normal(random));
  auto whole = std::vector{p, m, v}, cut = whole;
  AdamWStep step;
  step.lr = 1e-2, step.weight_decay = 0.1, step.step = 4, step.scale = 0.25;
  adamw_step(whole[0], g, whole[1], whole[2], step);
  for (size_t begin = 0; begin < 500;) {
    const size_t n = std::min<size_t>(500 - begin, begin % 31 + 1);
    auto piece = [&](std::vector<float>& x) { return std::span(x).subspan(begin, n); };
    adamw_step(piece(cut[0]), piece(g), piece(cut[1]), piece(cut[2]), step);
    begin += n;
  }
  EXPECT_EQ(whole, cut);
}

// What PyTorch's AdamW of one bf16 tensor does, operation by operation.
void torch_step(at::Tensor& p, const at::Tensor& g, at::Tensor& m, at::Tensor& v, const AdamWStep& s) {
  const double t = static_cast<double>(s.step), root = std::sqrt(1 - std::pow(s.beta2, t));
  p.mul_(1 - s.lr * s.weight_decay);
  m.lerp_(g, 1 - s.beta1);
  v.mul_(s.beta2).addcmul_(g, g, 1 - s.beta2);
  p.addcdiv_(m, v.sqrt().div_(root).add_(s.eps), -s.lr / (1 - std::pow(s.beta1, t)));
}

at::Tensor bf16_of(const std::vector<float>& values) {
  at::Tensor wide = at::empty({std::ssize(values)}, at::kFloat);
  std::copy(values.begin(), values.end(), wide.mutable_data_ptr<float>());
  return wide.to(at::kBFloat16);
}

std::vector<float> floats_of(const at::Tensor& narrow) {
  at::Tensor wide = narrow.to(at::kFloat);
  return {wide.const_data_ptr<float>(), wide.const_data_ptr<float>() + wide.numel()};
}

TEST(AdamWBf16, RoundsWhereTorchRounds) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> start(997);
  std::generate(start.begin(), start.end(), [&] { return 0.02f * normal(random); });
  at::Tensor p = bf16_of(start), m = at::zeros_like(p), v = at::zeros_like(p);
  std::vector<float> master = floats_of(p), avg(master.size()), squares(master.size()), g(master.size());
  AdamWStep step{.lr = 1e-3, .weight_decay = 0.01};
  for (step.step = 1; step.step <= 5; ++step.step) {
    std::generate(g.begin(), g.end(), [&] { return normal(random); });
    adamw_step_bf16(master, g, avg, squares, step);
    torch_step(p, bf16_of(g), m, v, step);
    EXPECT_EQ(master, floats_of(p)) << step.step;
    EXPECT_EQ(avg, floats_of(m)) << step.step;
    EXPECT_EQ(squares, floats_of(v)) << step.step;
  }
}

// rl_lora L-11: A of 2560 inputs, learning rate 1e-5: what is at least 2^-8 does not move, that is 1 - 2^-8 / 0.01976.
TEST(AdamWBf16, FourFifthsOfAFreshAdapterDoNotMove) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-0.01976f, 0.01976f);
  std::vector<float> start(20000), avg(start.size()), squares(start.size()), g(start.size(), 0.5f);
  std::generate(start.begin(), start.end(), [&] { return uniform(random); });
  std::vector<float> master = floats_of(bf16_of(start));
  int64_t kept = adamw_step_bf16(master, g, avg, squares, {.lr = 1e-5, .weight_decay = 0.1});
  EXPECT_NEAR(static_cast<double>(kept) / 20000, 1 - 0.00390625 / 0.01976, 0.015);  // five standard errors
}

TEST(AdamW, SpansOfUnequalSizesAreRefused) {
  std::vector<float> four(4), three(3);
  EXPECT_THROW(adamw_step(four, three, four, four, {}), Error);
  EXPECT_THROW(fold_add(four, three), Error);
}

TEST(NonFinite, TheFirstIsNamed) {
  std::vector<float> values(100, 1);
  EXPECT_FALSE(first_non_finite(values));
  values[70] = -INFINITY;
  values[90] = NAN;
  EXPECT_EQ(first_non_finite(values), 70u);
}

}  // namespace
}  // namespace sf::ops
