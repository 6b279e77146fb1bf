// SPDX-License-Identifier: Apache-2.0
#include "ops/vocabulary_head.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support.h"

namespace sf::ops {
namespace {

constexpr int64_t kRows = 7, kHidden = 24, kVocab = 101;

struct Case {
  at::Tensor x, table, labels, upstream;
  explicit Case(at::ScalarType type)
      : x((at::manual_seed(1), at::randn({kRows, kHidden})).to(type)),
        table(at::randn({kVocab, kHidden}).to(type)),
        labels(at::arange(kRows, at::kLong) * 16),
        upstream(at::randn({kRows})) {}
};

struct Found {
  at::Tensor nll, top1, gradient;
};

Found in_chunks(const Case& c, int64_t chunk) {
  VocabularyHead head(c.x, c.labels, kVocab, true);
  for (int64_t lo = 0; lo < kVocab; lo += chunk) head.see(lo, c.table.narrow(0, lo, std::min(chunk, kVocab - lo)));
  return {head.nll(), head.top1(), head.gradient(c.upstream)};
}

class VocabularyHeadOf : public ::testing::TestWithParam<int64_t> {};

// Bounds: sums of 24 products and 101 exponentials in fp32, values of about 10.
TEST_P(VocabularyHeadOf, ChunksIsCrossEntropyOfTheWholeTable) {
  Case c(at::kFloat);
  at::Tensor z = at::matmul(c.x.to(at::kDouble), c.table.to(at::kDouble).t());
  at::Tensor nll = at::log_softmax(z, 1).gather(1, c.labels.view({-1, 1})).view({-1}).neg();
  at::Tensor dz = at::softmax(z, 1).scatter_add(1, c.labels.view({-1, 1}), at::zeros({kRows, 1}, at::kDouble).sub(1));
  at::Tensor gradient = at::matmul(dz * c.upstream.to(at::kDouble).view({-1, 1}), c.table.to(at::kDouble));
  Found found = in_chunks(c, GetParam());
  EXPECT_LT(found.nll.to(at::kDouble).sub(nll).abs().max().item<double>(), 1e-5);
  EXPECT_LT(found.gradient.to(at::kDouble).sub(gradient).abs().max().item<double>(), 1e-5);
  EXPECT_TRUE(found.top1.equal(z.argmax(1)));
}

INSTANTIATE_TEST_SUITE_P(Rows, VocabularyHeadOf, ::testing::Values(1, 16, 50, 101));

// Bound: one bf16 rounding of the logits' gradient (2^-9 of it) and one of the result, sums of about 5.
TEST(VocabularyHead, OfBf16KeepsLogitsInFp32) {
  Case c(at::kBFloat16), wide(at::kFloat);
  wide.x = c.x.to(at::kFloat), wide.table = c.table.to(at::kFloat);
  Found narrow = in_chunks(c, 32), wanted = in_chunks(wide, 32);
  EXPECT_LT(narrow.nll.sub(wanted.nll).abs().max().item<float>(), 1e-5f);
  EXPECT_LT(narrow.gradient.to(at::kFloat).sub(wanted.gradient).abs().max().item<float>(), 0.05f);
}

// A chunk whose logits tower over those before it, by 200 and more: what came before is worth nothing, and no
// exponential overflows.
TEST(VocabularyHead, ALargeLogitThatComesLateIsNoTrouble) {
  Case c(at::kFloat);
  c.table.narrow(0, 90, 1).copy_(c.x.narrow(0, 2, 1) * 20);
  const Found late = in_chunks(c, 16), whole = in_chunks(c, kVocab);
  EXPECT_TRUE(late.nll.isfinite().all().item<bool>() && late.gradient.isfinite().all().item<bool>());
  EXPECT_EQ(late.top1.const_data_ptr<int64_t>()[2], 90);
  EXPECT_LT(late.gradient.sub(whole.gradient).abs().max().item<float>(), 1e-4f);  // entries of 60
}

TEST(VocabularyHead, ARowDependsOnNoOther) {
  Case c(at::kFloat), alone = c;
  alone.x = c.x.narrow(0, 3, 1), alone.labels = c.labels.narrow(0, 3, 1), alone.upstream = c.upstream.narrow(0, 3, 1);
  const Found all = in_chunks(c, 32), one = in_chunks(alone, 32);
  EXPECT_TRUE(one.nll.equal(all.nll.narrow(0, 3, 1)));
  EXPECT_TRUE(one.gradient.equal(all.gradient.narrow(0, 3, 1)));
}

TEST(VocabularyHead, AChunkLeftOutIsRefused) {
  Case c(at::kFloat);
  VocabularyHead head(c.x, c.labels, kVocab, false);
  head.see(0, c.table.narrow(0, 0, 20));
  EXPECT_THROW(head.see(40, c.table.narrow(0, 40, 20)), Error);
}

}  // namespace
}  // namespace sf::ops
