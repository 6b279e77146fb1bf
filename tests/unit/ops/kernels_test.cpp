// SPDX-License-Identifier: Apache-2.0
// Fast kernels against their references, in every instruction set this machine has.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "sf_kernels/attention.h"
#include "sf_kernels/gemm.h"
#include "sf_kernels/isa.h"
#include "sf_kernels/loss.h"
#include "sf_kernels/optimizer.h"
#include "sf_kernels/rows.h"

namespace sf::kernels {
namespace {

class Kernels : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > best_isa()) GTEST_SKIP() << "this machine has no " << name_of(GetParam());
    use_isa(GetParam());
  }
  void TearDown() override { use_isa(best_isa()); }
};

std::mt19937 random_bits(11);

std::vector<float> normals(size_t n, float spread = 1) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> out(n);
  for (float& x : out) x = normal(random_bits);
  return out;
}

std::vector<uint16_t> narrowed(const std::vector<float>& from) {
  std::vector<uint16_t> out(from.size());
  reference::to_bf16(from.data(), out.data(), from.size());
  return out;
}

template <typename T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Calls body(offset, n) for every alignment of a float within a cache line and lengths around the vectors' widths.
template <typename Body>
void everywhere(const Body& body) {
  for (size_t offset = 0; offset < 16; ++offset) {
    for (size_t n : {0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 101}) body(offset, n);
  }
}

TEST_P(Kernels, Fp32ProductEqualsItsReferenceBitForBit) {
  for (const auto& [m, n, k] : {std::array<size_t, 3>{1, 1, 1},
                                {1, 64, 40},
                                {2, 33, 17},
                                {3, 50, 31},
                                {5, 100, 8},
                                {6, 65, 9},
                                {7, 48, 33},
                                {12, 40, 50},
                                {13, 129, 20},
                                {40, 70, 16}}) {
    const std::vector<float> x = normals(m * k), w = normals(n * k), bias = normals(n);
    std::vector<float> want(m * n), got(m * n), packed(packed_f32_size(n, k));
    reference::gemm_f32({x.data(), k, 1}, m, {w.data(), k, 1}, n, k, bias.data(), {want.data(), n, 1});
    pack_f32({w.data(), k, 1}, n, k, packed.data());
    gemm_f32({x.data(), k, 1}, m, packed.data(), n, k, bias.data(), {got.data(), n, 1});
    EXPECT_TRUE(same(want, got)) << m << " " << n << " " << k;
  }
}

TEST_P(Kernels, Bf16ProductEqualsItsReferenceBitForBit) {
  for (const auto& [m, n, k] :
       {std::array<size_t, 3>{1, 1, 1}, {1, 64, 40}, {2, 33, 17}, {5, 100, 8}, {7, 48, 33}, {13, 129, 20}}) {
    const std::vector<uint16_t> x = narrowed(normals(m * k)), w = narrowed(normals(n * k));
    std::vector<float> want(m * n), got(m * n);
    std::vector<uint16_t> packed(packed_bf16_size(n, k));
    reference::gemm_bf16({x.data(), k, 1}, m, {w.data(), k, 1}, n, k, nullptr, {want.data(), n, 1});
    pack_bf16({w.data(), k, 1}, n, k, packed.data());
    gemm_bf16({x.data(), k, 1}, m, packed.data(), n, k, nullptr, {got.data(), n, 1});
    EXPECT_TRUE(same(want, got)) << m << " " << n << " " << k;
    std::vector<uint16_t> narrow(m * n);
    gemm_bf16_narrow({x.data(), k, 1}, m, packed.data(), n, k, nullptr, {narrow.data(), n, 1});
    EXPECT_EQ(narrow, narrowed(want)) << m << " " << n << " " << k;
  }
}

TEST_P(Kernels, AProductCutAlongKKeepsItsBits) {
  const size_t m = 13, n = 53, k = 46, cut = 18;
  const std::vector<float> x = normals(m * k), w = normals(n * k);
  std::vector<float> whole(m * n), parts(m * n), packed(packed_f32_size(n, k));
  pack_f32({w.data(), k, 1}, n, k, packed.data());
  gemm_f32({x.data(), k, 1}, m, packed.data(), n, k, nullptr, {whole.data(), n, 1});
  pack_f32({w.data(), k, 1}, n, cut, packed.data());
  gemm_f32({x.data(), k, 1}, m, packed.data(), n, cut, nullptr, {parts.data(), n, 1});
  pack_f32({w.data() + cut, k, 1}, n, k - cut, packed.data());
  gemm_f32_add({x.data() + cut, k, 1}, m, packed.data(), n, k - cut, {parts.data(), n, 1});
  EXPECT_TRUE(same(whole, parts));
  const std::vector<uint16_t> x16 = narrowed(x), w16 = narrowed(w);
  std::vector<uint16_t> packed16(packed_bf16_size(n, k));
  pack_bf16({w16.data(), k, 1}, n, k, packed16.data());
  gemm_bf16({x16.data(), k, 1}, m, packed16.data(), n, k, nullptr, {whole.data(), n, 1});
  pack_bf16({w16.data(), k, 1}, n, cut, packed16.data());
  gemm_bf16({x16.data(), k, 1}, m, packed16.data(), n, cut, nullptr, {parts.data(), n, 1});
  pack_bf16({w16.data() + cut, k, 1}, n, k - cut, packed16.data());
  gemm_bf16_add({x16.data() + cut, k, 1}, m, packed16.data(), n, k - cut, {parts.data(), n, 1});
  EXPECT_TRUE(same(whole, parts));
}

TEST_P(Kernels, TransposedOperandsArePackedToTheSamePanels) {
  const size_t n = 37, k = 45;
  const std::vector<float> w = normals(n * k);
  std::vector<float> turned(n * k), straight(packed_f32_size(n, k)), other(straight.size());
  for (size_t i = 0; i < n; ++i) {
    for (size_t t = 0; t < k; ++t) turned[t * n + i] = w[i * k + t];
  }
  pack_f32({w.data(), k, 1}, n, k, straight.data());
  pack_f32({turned.data(), 1, n}, n, k, other.data());
  EXPECT_TRUE(same(straight, other));
  const std::vector<uint16_t> w16 = narrowed(w), turned16 = narrowed(turned);
  std::vector<uint16_t> straight16(packed_bf16_size(n, k)), other16(straight16.size());
  pack_bf16({w16.data(), k, 1}, n, k, straight16.data());
  pack_bf16({turned16.data(), 1, n}, n, k, other16.data());
  EXPECT_TRUE(same(straight16, other16));
}

TEST_P(Kernels, ATransposedLeftSideGivesTheSameBits) {
  const size_t n = 19, k = 31;
  for (size_t m : {1, 5, 12, 23, 32}) {
    const std::vector<float> x = normals(m * k), w = normals(n * k);
    std::vector<float> turned(m * k), want(m * n), got(m * n), packed(packed_f32_size(n, k));
    for (size_t i = 0; i < m; ++i)
      for (size_t t = 0; t < k; ++t) turned[t * m + i] = x[i * k + t];
    pack_f32({w.data(), k, 1}, n, k, packed.data());
    gemm_f32({x.data(), k, 1}, m, packed.data(), n, k, nullptr, {want.data(), n, 1});
    gemm_f32({turned.data(), 1, m}, m, packed.data(), n, k, nullptr, {got.data(), n, 1});
    EXPECT_TRUE(same(want, got)) << m;
    const std::vector<uint16_t> x16 = narrowed(x), turned16 = narrowed(turned), w16 = narrowed(w);
    std::vector<uint16_t> packed16(packed_bf16_size(n, k));
    pack_bf16({w16.data(), k, 1}, n, k, packed16.data());
    gemm_bf16({x16.data(), k, 1}, m, packed16.data(), n, k, nullptr, {want.data(), n, 1});
    gemm_bf16({turned16.data(), 1, m}, m, packed16.data(), n, k, nullptr, {got.data(), n, 1});
    EXPECT_TRUE(same(want, got)) << m << " bf16";
  }
}

TEST_P(Kernels, AdamWEqualsItsReferenceWhereverASpanBegins) {
  const AdamWConstants c = adamw_constants(1e-3, 0.9, 0.999, 1e-8, 0.1, 3, 0.5);
  everywhere([&](size_t offset, size_t n) {
    std::vector<float> p = normals(offset + n), m = normals(offset + n, 0.1f), v = normals(offset + n, 0.1f);
    for (float& x : v) x = std::abs(x);
    const std::vector<float> g = normals(offset + n);
    std::vector<float> p2 = p, m2 = m, v2 = v;
    adamw(p.data() + offset, g.data() + offset, m.data() + offset, v.data() + offset, n, c);
    reference::adamw(p2.data() + offset, g.data() + offset, m2.data() + offset, v2.data() + offset, n, c);
    ASSERT_TRUE(same(p, p2) && same(m, m2) && same(v, v2)) << offset << " " << n;
  });
}

TEST_P(Kernels, AdamWIsPyTorchsFormula) {
  const size_t n = 50;
  std::vector<float> p = normals(n), m(n), v(n);
  std::vector<double> dp(p.begin(), p.end()), dm(n), dv(n);
  for (int64_t step = 1; step <= 5; ++step) {
    const std::vector<float> g = normals(n);
    adamw(p.data(), g.data(), m.data(), v.data(), n, adamw_constants(0.01, 0.9, 0.95, 1e-8, 0.1, step, 1));
    const double t = static_cast<double>(step);
    for (size_t i = 0; i < n; ++i) {
      dp[i] *= 1 - 0.01 * 0.1;
      dm[i] = 0.9 * dm[i] + 0.1 * g[i];
      dv[i] = 0.95 * dv[i] + 0.05 * g[i] * g[i];
      dp[i] -= 0.01 / (1 - std::pow(0.9, t)) * dm[i] / (std::sqrt(dv[i]) / std::sqrt(1 - std::pow(0.95, t)) + 1e-8);
      EXPECT_NEAR(p[i], dp[i], 2e-6);  // five steps of fp32 rounding at values of about 3
    }
  }
}

TEST_P(Kernels, FoldsAndConversionsEqualTheirReferencesWhereverASpanBegins) {
  everywhere([&](size_t offset, size_t n) {
    const std::vector<float> acc = normals(offset + n), g = normals(offset + n);
    const std::vector<uint16_t> g16 = narrowed(g);
    std::vector<float> one = acc, two = acc, wide(offset + n);
    std::vector<uint16_t> half(offset + n);
    fold_add(one.data() + offset, g.data() + offset, n);
    fold_add_bf16(two.data() + offset, g16.data() + offset, n);
    from_bf16(g16.data() + offset, wide.data() + offset, n);
    to_bf16(g.data() + offset, half.data() + offset, n);
    for (size_t i = offset; i < offset + n; ++i) {
      const float widened = std::bit_cast<float>(static_cast<uint32_t>(g16[i]) << 16);
      ASSERT_EQ(one[i], acc[i] + g[i]);
      ASSERT_EQ(two[i], acc[i] + widened);
      ASSERT_EQ(wide[i], widened);
      ASSERT_EQ(half[i], g16[i]);
    }
  });
}

TEST_P(Kernels, RoundingToE4m3TakesTheNearestNumberAndTheEvenOneOfTwo) {
  std::vector<float> values = normals(3000, 20);
  for (int code = 0; code < 0x7e;
       ++code) {  // each number of the format, each middle between two, and what is beside it
    const float low = code < 8 ? std::ldexp(static_cast<float>(code), -9)
                               : std::ldexp(static_cast<float>(8 + code % 8), code / 8 - 10);
    const float high = code + 1 < 8 ? std::ldexp(static_cast<float>(code + 1), -9)
                                    : std::ldexp(static_cast<float>(8 + (code + 1) % 8), (code + 1) / 8 - 10);
    const float middle = (low + high) / 2;
    for (float x : {low, middle, std::nextafter(middle, 0.f), std::nextafter(middle, 1e9f), -middle})
      values.push_back(x);
  }
  for (float x : {448.f, 464.f, 1e30f, -1e30f, 1e-30f, -0.f}) values.push_back(x);
  for (size_t offset : {size_t{0}, size_t{3}})
    for (float factor : {1.f, 0.37f}) {
      std::vector<uint8_t> got(values.size() - offset), want(got.size());
      to_e4m3(values.data() + offset, got.data(), got.size(), factor);
      reference::to_e4m3(values.data() + offset, want.data(), want.size(), factor);
      ASSERT_TRUE(same(got, want));
    }
  EXPECT_EQ(largest(values.data(), values.size()), 1e30f);
  EXPECT_EQ(largest(values.data(), 0), 0.f);
}

TEST_P(Kernels, RoundingToBf16KeepsNanAndGoesToEven) {
  const uint32_t bits[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x7f800001, 0xffffffff,
                           0x7f800000, 0x7f7fffff, 0x80000001, 0};
  std::vector<float> values;
  for (uint32_t b : bits) values.push_back(std::bit_cast<float>(b));
  std::vector<uint16_t> got(values.size()), want(values.size());
  to_bf16(values.data(), got.data(), got.size());
  reference::to_bf16(values.data(), want.data(), want.size());
  EXPECT_EQ(got, want);
  EXPECT_EQ(got[0], 0x3f80);
  EXPECT_EQ(got[1], 0x3f82);
  EXPECT_EQ(got[3], 0x7fc0);
}

TEST_P(Kernels, TheFirstNonFiniteValueIsFound) {
  everywhere([&](size_t offset, size_t n) {
    std::vector<float> values = normals(offset + n + 1);
    ASSERT_EQ(first_non_finite(values.data() + offset, n), n);
    for (size_t bad = 0; bad < n; ++bad) {
      std::vector<float> copy = values;
      copy[offset + bad] = bad % 2 ? INFINITY : NAN;
      copy[offset + n] = NAN;  // outside the span
      ASSERT_EQ(first_non_finite(copy.data() + offset, n), bad);
    }
  });
}

TEST_P(Kernels, RotaryEqualsItsReferenceBitForBit) {
  for (Type type : {Type::kF32, Type::kBF16}) {
    const size_t tokens = 9, heads = 3, dims = 43, half = 18, n = tokens * heads * dims;
    const std::vector<float> x = normals(n), cos = normals(20 * half), sin = normals(20 * half);
    const std::vector<uint16_t> x16 = narrowed(x);
    std::vector<float> want(n), got(n);
    std::vector<int64_t> positions;
    for (size_t i = 0; i < tokens; ++i) positions.push_back(static_cast<int64_t>(random_bits() % 20));
    Rotary op;
    op.type = type, op.batch = 1, op.heads = heads, op.length = tokens, op.dims = dims, op.half = half;
    op.x = type == Type::kF32 ? static_cast<const void*>(x.data()) : x16.data();
    op.x_head = op.y_head = dims, op.x_token = op.y_token = heads * dims;
    op.cos = cos.data(), op.sin = sin.data(), op.positions = positions.data();
    for (bool inverse : {false, true}) {
      op.inverse = inverse;
      op.y = want.data();
      reference::rotary(op);
      op.y = got.data();
      rotary(op);
      EXPECT_TRUE(same(want, got));
    }
  }
}

TEST_P(Kernels, NormGateAndLossAreNearTheirReferences) {
  const size_t rows = 5, width = 333;
  const std::vector<float> x = normals(rows * width, 3), y = normals(rows * width, 3), weight = normals(width);
  RmsNorm norm;
  norm.rows = rows, norm.width = norm.x_row = width, norm.eps = 1e-5f, norm.x = x.data(), norm.weight = weight.data();
  std::vector<float> got(x.size()), want(x.size()), rstd(rows);
  rms_norm(norm, got.data(), rstd.data());
  reference::rms_norm(norm, want.data(), rstd.data());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6);  // 333 fp32 additions
  swiglu(Type::kF32, x.data(), y.data(), got.data(), x.size());
  reference::swiglu(Type::kF32, x.data(), y.data(), want.data(), x.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 4e-7 * (1 + std::abs(want[i])));  // 3 ulp
}

// Of one row of logits, left in their place.
void expect_gradients_near(const float* ours, const float* theirs, size_t width, Type type) {
  for (size_t i = 0; i < width; ++i) {
    if (type == Type::kF32) {
      ASSERT_NEAR(ours[i], theirs[i], 1e-7);
    } else {
      float a, b;
      from_bf16(reinterpret_cast<const uint16_t*>(ours) + i, &a, 1);
      from_bf16(reinterpret_cast<const uint16_t*>(theirs) + i, &b, 1);
      ASSERT_NEAR(a, b, 1e-3);  // 2^-8 of at most 0.25
    }
  }
}

TEST_P(Kernels, SoftLossIsNearItsReferenceWhereverARowBegins) {
  for (size_t width : {1, 5, 16, 31, 333}) {
    for (Type type : {Type::kF32, Type::kBF16}) {
      const size_t rows = 9;
      const std::vector<float> x = normals(rows * width, 3), t = normals(3 * width, 3), lse{12, 9, 11};
      std::vector<float> fast = x, slow = x, weight(rows, 0.25f);
      weight[2] = 0;
      std::vector<int64_t> teacher;
      for (size_t r = 0; r < rows; ++r) teacher.push_back(static_cast<int64_t>(r * 2 % 3));
      SoftLoss loss;
      loss.rows = rows, loss.width = width, loss.z = fast.data(), loss.t = t.data(), loss.teacher = teacher.data();
      loss.target_lse = lse.data(), loss.weight = weight.data();
      std::vector<SoftRow> plain(rows), got(rows), want(rows);
      soft_loss(loss, plain.data());
      EXPECT_EQ(fast, x);
      loss.gradient = true, loss.type = type;
      soft_loss(loss, got.data());
      loss.z = slow.data();
      reference::soft_loss(loss, want.data());
      for (size_t r = 0; r < rows; ++r) {
        EXPECT_EQ(plain[r].loss, got[r].loss);
        EXPECT_NEAR(got[r].nll, want[r].nll, 1e-5);  // values of about 10
        EXPECT_NEAR(got[r].loss, want[r].loss, 1e-5);
        EXPECT_NEAR(got[r].acceptance, want[r].acceptance, 1e-6);
        EXPECT_EQ(got[r].argmax, want[r].argmax);
        expect_gradients_near(fast.data() + r * width, slow.data() + r * width, width, type);
      }
    }
  }
}

TEST_P(Kernels, DistanceLossIsNearItsReferenceWithAndWithoutATeacher) {
  for (size_t width : {1, 5, 16, 31, 333}) {
    for (Type type : {Type::kF32, Type::kBF16}) {
      for (bool teacher : {false, true}) {
        const size_t rows = 5;
        const std::vector<float> x = normals(rows * width, 3), t = normals(rows * width, 3);
        std::vector<float> fast = x, slow = x, fast_t = t, slow_t = t, nll(rows, 0.25f), l1(rows, 0.5f);
        nll[1] = 0, l1[2] = 0;
        std::vector<int64_t> labels;
        for (size_t r = 0; r < rows; ++r) labels.push_back(static_cast<int64_t>((r * 7 + 4) % width));
        DistanceLoss loss;
        loss.rows = rows, loss.width = width, loss.label = labels.data();
        loss.nll_weight = nll.data(), loss.l1_weight = l1.data(), loss.gradient = true, loss.type = type;
        std::vector<DistanceRow> got(rows), want(rows);
        loss.z = fast.data(), loss.t = teacher ? fast_t.data() : nullptr;
        distance_loss(loss, got.data());
        loss.z = slow.data(), loss.t = teacher ? slow_t.data() : nullptr;
        reference::distance_loss(loss, want.data());
        for (size_t r = 0; r < rows; ++r) {
          EXPECT_NEAR(got[r].loss, want[r].loss, 1e-5);  // values of about 10
          EXPECT_NEAR(got[r].nll, want[r].nll, 1e-5);
          EXPECT_NEAR(got[r].l1, want[r].l1, 1e-5);
          EXPECT_NEAR(got[r].top, want[r].top, 1e-6);
          EXPECT_NEAR(got[r].teacher_top, want[r].teacher_top, 1e-6);
          EXPECT_EQ(got[r].argmax, want[r].argmax);
          EXPECT_EQ(got[r].teacher_argmax, want[r].teacher_argmax);
          expect_gradients_near(fast.data() + r * width, slow.data() + r * width, width, type);
        }
      }
    }
  }
}

TEST_P(Kernels, EqualSoftMaximaHaveNoDistanceAndNoSlope) {
  const std::vector<float> x = normals(40, 3), zero(1, 0.0f), one(1, 1.0f);
  std::vector<float> z = x, t = x;
  const int64_t label = 7;
  DistanceLoss loss;
  loss.rows = 1, loss.width = 40, loss.z = z.data(), loss.t = t.data(), loss.label = &label, loss.gradient = true;
  loss.nll_weight = zero.data(), loss.l1_weight = one.data();
  DistanceRow row;
  distance_loss(loss, &row);
  EXPECT_EQ(row.l1, 0);
  for (float slope : z) EXPECT_EQ(slope, 0);
}

TEST_P(Kernels, LabelLossOfChunksIsNearItsReference) {
  const size_t rows = 5, width = 333;
  const std::vector<float> logits = normals(rows * width, 3);
  const std::vector<int64_t> labels{0, 332, 333, 500, 665};
  for (bool gradient : {false, true}) {
    std::vector<float> z, slow_z, shrink(rows), slow_shrink(rows);
    LabelLoss loss;
    loss.rows = rows, loss.width = width, loss.label = labels.data();
    std::vector<LabelRow> fast(rows), slow(rows);
    for (int64_t first : {0, 333}) {
      z = slow_z = logits;
      loss.first = first;
      loss.z = z.data(), loss.shrink = gradient ? shrink.data() : nullptr;
      label_loss(loss, fast.data());
      loss.z = slow_z.data(), loss.shrink = gradient ? slow_shrink.data() : nullptr;
      reference::label_loss(loss, slow.data());
      EXPECT_TRUE(gradient || z == logits);
      for (size_t i = 0; i < z.size(); ++i) EXPECT_NEAR(z[i], slow_z[i], gradient ? 2e-7 : 0);  // of at most 1
      for (size_t r = 0; r < rows; ++r) EXPECT_NEAR(shrink[r], slow_shrink[r], 2e-7);
    }
    for (size_t r = 0; r < rows; ++r) {
      EXPECT_EQ(fast[r].top, slow[r].top);
      EXPECT_NEAR(fast[r].total, slow[r].total, 1e-5 * slow[r].total);  // 666 fp32 additions
      EXPECT_EQ(fast[r].at_label, slow[r].at_label);
      EXPECT_EQ(fast[r].argmax, slow[r].argmax);  // the second chunk ties with the first: the lower id stays
    }
  }
}

TEST_P(Kernels, HardLossIsNearItsReferenceWhereverARowBegins) {
  for (size_t width : {1, 5, 16, 31, 77}) {
    for (Type type : {Type::kF32, Type::kBF16}) {
      const size_t rows = 9;
      const std::vector<float> x = normals(rows * width, 3);
      std::vector<float> fast = x, slow = x, weight(rows, 0.25f);
      weight[2] = 0;
      std::vector<int64_t> label;
      for (size_t r = 0; r < rows; ++r) label.push_back(static_cast<int64_t>(r * 7 % width));
      HardLoss loss;
      loss.rows = rows, loss.width = width, loss.z = fast.data(), loss.label = label.data();
      loss.weight = weight.data(), loss.gradient = true, loss.type = type;
      std::vector<HardRow> got(rows), want(rows);
      hard_loss(loss, got.data());
      loss.z = slow.data();
      reference::hard_loss(loss, want.data());
      for (size_t r = 0; r < rows; ++r) {
        EXPECT_NEAR(got[r].nll, want[r].nll, 2e-6);  // values of up to about 10
        EXPECT_NEAR(got[r].loss, want[r].loss, 1e-6);
        EXPECT_NEAR(got[r].lse, want[r].lse, 1e-6);
        EXPECT_NEAR(got[r].entropy, want[r].entropy, 2e-6);  // of up to ln 77, a difference of two such sums
        EXPECT_EQ(got[r].argmax, want[r].argmax);
        expect_gradients_near(fast.data() + r * width, slow.data() + r * width, width, type);
      }
    }
  }
}

struct Scene {
  static constexpr size_t kRows = 7, kKeys = 150, kDims = 48;
  std::vector<float> q = normals(6 * kRows * kDims), k = normals(2 * kKeys * kDims), v = normals(2 * kKeys * kDims);
  std::vector<float> kd = normals(2 * kRows * kDims), vd = normals(2 * kRows * kDims);
  std::vector<uint16_t> k16 = narrowed(k), v16 = narrowed(v);
  std::vector<int64_t> low{0, 0, 3, 64, 70, 10, 5}, high{1, 150, 64, 65, 130, 10, 140};
  const float* k_pointer = kd.data();
  const float* v_pointer = vd.data();

  Attention op(Type type, size_t diagonals) const {
    Attention a;
    a.heads = 6, a.kv_heads = 2, a.rows = kRows, a.dims = kDims, a.scale = 0.2f, a.kv_type = type;
    a.q = {q.data(), 0, kRows * kDims, kDims};
    a.k = {type == Type::kF32 ? static_cast<const void*>(k.data()) : k16.data(), 0, kKeys * kDims, kDims};
    a.v = {type == Type::kF32 ? static_cast<const void*>(v.data()) : v16.data(), 0, kKeys * kDims, kDims};
    a.low = low.data(), a.high = high.data();
    a.diagonals = diagonals, a.k_diagonal = &k_pointer, a.v_diagonal = &v_pointer;
    return a;
  }
};

TEST_P(Kernels, AttentionIsNearItsReference) {
  const Scene scene;
  for (Type type : {Type::kF32, Type::kBF16}) {
    for (size_t diagonals : {0, 1}) {
      const Attention op = scene.op(type, diagonals);
      std::vector<float> got(6 * Scene::kRows * Scene::kDims), want(got.size()), lse(6 * Scene::kRows),
          lse_want(lse.size());
      attention(op, {got.data(), 0, Scene::kRows * Scene::kDims, Scene::kDims}, lse.data());
      reference::attention(op, {want.data(), 0, Scene::kRows * Scene::kDims, Scene::kDims}, lse_want.data());
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6);  // averages of values of about 1
      for (size_t i = 0; i < lse.size(); ++i) {
        if (std::isfinite(lse_want[i]))
          ASSERT_NEAR(lse[i], lse_want[i], 2e-6);
        else
          ASSERT_EQ(lse[i], lse_want[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Kernels, testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
                         [](const auto& info) { return name_of(info.param); });

// Every output of one pass through the kernels.
std::vector<float> everything() {
  random_bits.seed(5);
  std::vector<float> all;
  auto keep = [&](const std::vector<float>& part) { all.insert(all.end(), part.begin(), part.end()); };
  const size_t rows = 13, width = 77;
  const std::vector<float> x = normals(rows * width, 3), y = normals(rows * width, 2), weight = normals(width);
  std::vector<float> out(x.size()), more(x.size()), stat(rows), dw(width);
  RmsNorm norm;
  norm.rows = rows, norm.width = norm.x_row = width, norm.eps = 1e-5f, norm.x = x.data(), norm.weight = weight.data();
  rms_norm(norm, out.data(), stat.data());
  keep(out), keep(stat);
  rms_norm_backward(norm, y.data(), stat.data(), out.data(), dw.data());
  keep(out), keep(dw);
  swiglu(Type::kF32, x.data(), y.data(), out.data(), x.size());
  keep(out);
  swiglu_backward(Type::kF32, x.data(), y.data(), x.data(), out.data(), more.data(), x.size());
  keep(out), keep(more);
  const std::vector<float> ones(rows, 1.0f), lse(rows, 9.0f);
  const std::vector<int64_t> labels(rows, 7);
  std::vector<float> logits = x, shrink(rows);
  LabelLoss label{rows, width, logits.data(), labels.data(), 0, shrink.data()};
  std::vector<LabelRow> seen(rows);
  label_loss(label, seen.data());
  for (const LabelRow& row : seen) keep({row.top, row.total, row.at_label});
  keep(logits), keep(shrink);
  for (Type type : {Type::kF32, Type::kBF16}) {
    std::vector<float> z = x;
    const std::vector<int64_t> words(rows, 41);
    HardLoss hard;
    hard.rows = rows, hard.width = width, hard.z = z.data(), hard.label = words.data(), hard.weight = ones.data();
    hard.gradient = true, hard.type = type;
    std::vector<HardRow> judged(rows);
    hard_loss(hard, judged.data());
    for (const HardRow& row : judged) keep({row.loss, row.lse, row.entropy});
    keep(z);
    z = x;
    const std::vector<int64_t> teachers(rows, 1);
    SoftLoss soft;
    soft.rows = rows, soft.width = width, soft.z = z.data(), soft.t = y.data(), soft.teacher = teachers.data();
    soft.target_lse = lse.data(), soft.weight = ones.data(), soft.gradient = true, soft.type = type;
    std::vector<SoftRow> found(rows);
    soft_loss(soft, found.data());
    for (const SoftRow& row : found) keep({row.loss, row.acceptance});
    keep(z);
    std::vector<float> apart = x, from = y;
    std::vector<DistanceRow> distances(rows);
    DistanceLoss distance;
    distance.rows = rows, distance.width = width, distance.z = apart.data(), distance.t = from.data();
    distance.label = teachers.data(), distance.nll_weight = distance.l1_weight = ones.data();
    distance.gradient = true, distance.type = type;
    distance_loss(distance, distances.data());
    for (const DistanceRow& row : distances) keep({row.loss, row.l1, row.top, row.teacher_top});
    keep(apart);
  }
  std::vector<float> packed(packed_f32_size(rows, width));
  pack_f32({y.data(), width, 1}, rows, width, packed.data());
  std::vector<RowSummary> summary(rows);
  gemm_f32_summary({x.data(), width, 1}, rows, packed.data(), rows, width, summary.data());
  for (const RowSummary& row : summary) keep({row.lse, row.margin, static_cast<float>(row.top1)});
  const Scene scene;
  const Attention op = scene.op(Type::kF32, 1);
  const size_t size = 6 * Scene::kRows * Scene::kDims;
  std::vector<float> o(size), l(6 * Scene::kRows), dq(size), dk(scene.k.size()), dv(scene.k.size());
  std::vector<float> dkd(scene.kd.size()), dvd(scene.kd.size());
  const std::vector<float> g = normals(size);
  attention(op, {o.data(), 0, Scene::kRows * Scene::kDims, Scene::kDims}, l.data());
  keep(o), keep(l);
  float* dk_pointer = dkd.data();
  float* dv_pointer = dvd.data();
  AttentionGradient gradient;
  gradient.out = {o.data(), 0, Scene::kRows * Scene::kDims, Scene::kDims};
  gradient.g = {g.data(), 0, Scene::kRows * Scene::kDims, Scene::kDims};
  gradient.lse = l.data(), gradient.keys = Scene::kKeys;
  gradient.dq = dq.data(), gradient.dk = dk.data(), gradient.dv = dv.data();
  gradient.dk_diagonal = &dk_pointer, gradient.dv_diagonal = &dv_pointer;
  attention_backward(op, gradient);
  keep(dq), keep(dk), keep(dv), keep(dkd), keep(dvd);
  return all;
}

TEST(Isa, EveryInstructionSetGivesTheSameBits) {
  use_isa(Isa::kPortable);
  const std::vector<float> want = everything();
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (isa > best_isa()) continue;
    use_isa(isa);
    const std::vector<float> got = everything();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << name_of(isa) << " at " << i;
    }
  }
  use_isa(best_isa());
}

}  // namespace
}  // namespace sf::kernels
