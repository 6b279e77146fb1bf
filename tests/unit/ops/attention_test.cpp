// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ops/attention.h"
#include "support.h"
#include "tensor/compare.h"
#include "tensor/threads.h"

namespace sf::ops {
namespace {

at::Tensor longs(std::initializer_list<int64_t> values) {
  return at::tensor(at::ArrayRef<int64_t>(values), at::kLong);
}

// The formula of eagle_dflash 1.5 with the keys expanded; one block is plain causal attention.
at::Tensor plain(const at::Tensor& q, const std::vector<at::Tensor>& k, const std::vector<at::Tensor>& v,
                 const AttentionOptions& options) {
  const int64_t groups = q.size(1) / k[0].size(1), s = q.size(2);
  const double scale = options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  auto expand = [&](const at::Tensor& t) { return t.to(at::kFloat).repeat_interleave(groups, 1); };
  const at::Tensor index = at::arange(s, at::kLong), i = index.unsqueeze(1), j = index.unsqueeze(0);
  at::Tensor seen = j <= i;
  if (options.window > 0) seen = seen.logical_and(i - j < options.window);
  seen = seen.view({1, 1, s, s});
  if (options.key_begin.defined())
    seen = seen.logical_and(index.view({1, 1, 1, s}) >= options.key_begin.view({-1, 1, 1, 1}));
  if (options.key_end.defined())
    seen = seen.logical_and(index.view({1, 1, 1, s}) < options.key_end.view({-1, 1, 1, 1}));
  const at::Tensor wide = q.to(at::kFloat);
  at::Tensor raw = at::matmul(wide, expand(k[0]).transpose(-1, -2)) * scale;
  std::vector<at::Tensor> parts{raw.masked_fill(seen.logical_not(), -1e30)};
  for (size_t b = 1; b < k.size(); ++b) parts.push_back((wide * expand(k[b])).sum(-1, true) * scale);
  const at::Tensor p = at::softmax(at::cat(parts, -1), -1);
  at::Tensor out = at::matmul(p.narrow(-1, 0, s) * seen.to(at::kFloat), expand(v[0]));
  for (size_t b = 1; b < v.size(); ++b) out = out + p.narrow(-1, s + static_cast<int64_t>(b) - 1, 1) * expand(v[b]);
  return out.to(q.scalar_type());
}

struct Shape4 {
  int64_t batch, heads, kv_heads, length, dims;
};

void expect_plain(const Shape4& s, const AttentionOptions& options, size_t blocks = 1) {
  std::vector<at::Tensor> k, v, leaves;
  const at::Tensor q = leaf({s.batch, s.heads, s.length, s.dims});
  leaves.push_back(q);
  for (size_t b = 0; b < blocks; ++b) {
    k.push_back(leaf({s.batch, s.kv_heads, s.length, s.dims}));
    v.push_back(leaf({s.batch, s.kv_heads, s.length, s.dims}));
    leaves.push_back(k.back());
    leaves.push_back(v.back());
  }
  // fp32 sums of a few hundred terms of size 1
  expect_same([&] { return attention_with_diagonals(q, k, v, options); }, [&] { return plain(q, k, v, options); },
              leaves, 5e-5);
}

// The allow-mask of eagle_dflash 2.4 over [context, all slots].
at::Tensor plain_blocks(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t context,
                        std::span<const int64_t> anchors) {
  const int64_t rows = q.size(1), block = rows / std::ssize(anchors), groups = q.size(0) / k.size(0);
  at::Tensor seen = at::zeros({1, rows, k.size(1)}, at::kBool);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < k.size(1); ++j) {
      const bool mine = j >= context && (j - context) / block == r / block;
      seen.mutable_data_ptr<bool>()[r * k.size(1) + j] =
          mine || (j < context && j < anchors[static_cast<size_t>(r / block)]);
    }
  }
  const at::Tensor wide_k = k.repeat_interleave(groups, 0), wide_v = v.repeat_interleave(groups, 0);
  at::Tensor raw = at::matmul(q, wide_k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(2)));
  return at::matmul(at::softmax(raw.masked_fill(seen.logical_not(), -INFINITY), -1), wide_v);
}

TEST(Attention, OfBlocksSeesTheContextBeforeItsAnchorAndItself) {
  for (const std::vector<int64_t>& anchors : {std::vector<int64_t>{0, 3, 3, 70}, std::vector<int64_t>{0}}) {
    const int64_t context = *std::max_element(anchors.begin(), anchors.end()), rows = 5 * std::ssize(anchors);
    const at::Tensor q = leaf({4, rows, 12}), kc = leaf({2, context, 12}), vc = leaf({2, context, 12}),
                     k = leaf({2, rows, 12}), v = leaf({2, rows, 12});
    expect_same([&] { return attention_of_blocks(q, kc, vc, k, v, anchors); },
                [&] {
                  return plain_blocks(q, at::cat({kc, k}, 1), at::cat({vc, v}, 1), context, anchors);
                },
                {q, kc, vc, k, v}, 5e-5);  // fp32 sums of a few dozen terms of size 1
  }
}

TEST(Attention, CausalValuesAndGradientsEqualTheFormula) {
  for (const Shape4& s :
       {Shape4{1, 1, 1, 1, 16}, {2, 4, 2, 37, 32}, {1, 3, 1, 64, 64}, {1, 6, 2, 150, 64}, {1, 2, 2, 65, 128}}) {
    expect_plain(s, {});
  }
}

TEST(Attention, HeadDimsThatFillNoVectorAreHandled) {
  for (int64_t dims : {1, 8, 20, 80}) expect_plain({1, 4, 2, 21, dims}, {});
}

TEST(Attention, AKeyIsVisibleWithinTheWindowOnly) {
  for (int64_t window : {1, 5, 64, 100}) {
    AttentionOptions options;
    options.window = window;
    expect_plain({1, 2, 1, 140, 32}, options);
  }
}

TEST(Attention, PaddingOnEitherSideIsNotSeen) {
  AttentionOptions options;
  options.key_begin = longs({0, 3, 70});
  options.key_end = longs({90, 50, 90});
  const Shape4 s{3, 4, 2, 90, 32};
  const at::Tensor q = leaf({s.batch, s.heads, s.length, s.dims});
  const at::Tensor k = leaf({s.batch, s.kv_heads, s.length, s.dims}), v = leaf({s.batch, s.kv_heads, s.length, s.dims});
  expect_same([&] { return attention(q, k, v, options); }, [&] { return plain(q, {k}, {v}, options); }, {q, k, v},
              5e-5);
  const at::Tensor unseeing = attention(q, k, v, options).select(0, 2).narrow(1, 0, 70);
  EXPECT_EQ(unseeing.abs().max().item<float>(), 0);
}

TEST(Attention, AScaleOfOnesOwnIsUsed) {
  AttentionOptions options;
  options.scale = 0.3;
  expect_plain({1, 2, 1, 20, 32}, options);
}

TEST(Attention, RightPaddingDoesNotChangeTheBitsOfRealRows) {
  const at::Tensor q = at::randn({1, 4, 100, 32}), k = at::randn({1, 2, 100, 32}), v = at::randn({1, 2, 100, 32});
  AttentionOptions options;
  options.key_end = longs({61});
  const at::Tensor whole = attention(q, k, v, options).narrow(2, 0, 61);
  EXPECT_TRUE(tensor::bit_equal(whole, attention(q.narrow(2, 0, 61), k.narrow(2, 0, 61), v.narrow(2, 0, 61))));
}

TEST(Attention, Bf16IsComputedInFp32AndRoundedOnce) {
  const at::Tensor q = at::randn({1, 4, 50, 64}).to(at::kBFloat16), k = at::randn({1, 2, 50, 64}).to(at::kBFloat16);
  const at::Tensor v = at::randn({1, 2, 50, 64}).to(at::kBFloat16);
  const at::Tensor out = attention(q, k, v);
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  // values below 4: half an ulp of bf16 is 2^-8
  EXPECT_LT(tensor::max_abs_difference(out, plain(q.to(at::kFloat), {k}, {v}, {})), 1.0 / 128);
}

TEST(Attention, ThreadsDoNotChangeBits) {
  const at::Tensor q = leaf({2, 6, 90, 32}), k = leaf({2, 3, 90, 32}), v = leaf({2, 3, 90, 32}),
                   w = at::randn({2, 6, 90, 32});
  const int before = tensor::threads();
  auto work = [&](int threads) {
    tensor::set_threads(threads);
    const at::Tensor y = attention(q, k, v);
    std::vector<at::Tensor> all = gradients(y, w, {q, k, v});
    all.push_back(y);
    return all;
  };
  const auto one = work(1), three = work(3);
  tensor::set_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(tensor::bit_equal(one[i], three[i])) << i;
}

TEST(Attention, MergingHeadsNeedsNoCopy) {
  const at::Tensor q = at::randn({2, 4, 10, 16}), k = at::randn({2, 2, 10, 16});
  EXPECT_TRUE(attention(q, k, k).transpose(1, 2).is_contiguous());
}

TEST(AttentionWithDiagonals, ValuesAndGradientsEqualTheFormula) {
  for (size_t blocks : {2, 3, 7, 18}) expect_plain({2, 4, 2, 33, 32}, {}, blocks);
  expect_plain({1, 3, 1, 70, 64}, {}, 4);
}

TEST(AttentionWithDiagonals, PaddingMasksBlockZeroAlone) {
  AttentionOptions options;
  options.key_end = longs({20, 33});
  options.key_begin = longs({4, 0});
  expect_plain({2, 4, 2, 33, 32}, options, 3);
}

class Cached : public testing::TestWithParam<at::ScalarType> {};

TEST_P(Cached, ARowsBitsDoNotDependOnHowManyRowsAreComputed) {
  const int64_t heads = 6, kv_heads = 2, length = 300, dims = 64;
  const at::Tensor k = at::randn({kv_heads, 512, dims}).to(GetParam()),
                   v = at::randn({kv_heads, 512, dims}).to(GetParam());
  const at::Tensor q = at::randn({heads, length, dims}).to(GetParam());
  std::vector<int64_t> positions(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) positions[static_cast<size_t>(i)] = i;
  for (int64_t window : {0, 100}) {
    const at::Tensor all = attend_cached(q, k, v, positions, window);
    std::mt19937 random(7);
    for (int64_t m = 1; m <= 64; m = m < 8 ? m + 1 : m + 7) {
      const int64_t first = static_cast<int64_t>(random() % static_cast<uint32_t>(length - m));
      const at::Tensor some =
          attend_cached(q.narrow(1, first, m), k, v,
                        std::span(positions).subspan(static_cast<size_t>(first), static_cast<size_t>(m)), window);
      ASSERT_TRUE(tensor::bit_equal(some, all.narrow(0, first, m))) << m << " rows from " << first;
    }
    std::vector<int64_t> mixed{299, 0, 64, 63, 128, 5, 17};
    std::vector<at::Tensor> rows;
    for (int64_t p : mixed) rows.push_back(q.select(1, p));
    const at::Tensor some = attend_cached(at::stack(rows, 1), k, v, mixed, window);
    for (size_t i = 0; i < mixed.size(); ++i) {
      ASSERT_TRUE(tensor::bit_equal(some.select(0, static_cast<int64_t>(i)), all.select(0, mixed[i]))) << mixed[i];
    }
  }
}

TEST_P(Cached, WhatLiesBehindARowsPositionIsNeverRead) {
  const at::Tensor q = at::randn({4, 5, 32}).to(GetParam());
  const at::Tensor k = at::randn({2, 128, 32}).to(GetParam()), v = at::randn({2, 128, 32}).to(GetParam());
  const std::vector<int64_t> positions{66, 67, 68, 69, 70};
  const at::Tensor before = attend_cached(q, k, v, positions);
  k.narrow(1, 71, 57).fill_(NAN);
  v.narrow(1, 71, 57).fill_(NAN);
  EXPECT_TRUE(tensor::bit_equal(attend_cached(q, k, v, positions), before));
}

INSTANTIATE_TEST_SUITE_P(Types, Cached, testing::Values(at::kFloat, at::kBFloat16));

TEST(Cached, EqualsTrainingsForwardBitForBit) {
  const at::Tensor q = at::randn({1, 6, 130, 64}), k = at::randn({1, 2, 130, 64}), v = at::randn({1, 2, 130, 64});
  std::vector<int64_t> positions(130);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i);
  const at::Tensor cached = attend_cached(q.select(0, 0), k.select(0, 0), v.select(0, 0), positions);
  EXPECT_TRUE(tensor::bit_equal(attention(q, k, v).transpose(1, 2).reshape({130, 384}), cached));
}

TEST(Cached, ACacheWithRoomToSpareAndOddDimsIsRead) {
  const at::Tensor room = at::randn({2, 100, 24}), k = room.narrow(1, 0, 40), v = at::randn({2, 40, 24});
  const at::Tensor q = at::randn({4, 40, 24});
  std::vector<int64_t> positions(40);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i);
  const at::Tensor want = plain(q.unsqueeze(0), {k.unsqueeze(0)}, {v.unsqueeze(0)}, {});
  EXPECT_LT(tensor::max_abs_difference(attend_cached(q, k, v, positions), want.transpose(1, 2).reshape({40, 96})),
            1e-5);
}

}  // namespace
}  // namespace sf::ops
