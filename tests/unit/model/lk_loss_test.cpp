// SPDX-License-Identifier: Apache-2.0
#include "model/lk_loss.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/error.h"

namespace sf::model {
namespace {

constexpr int kRows = 3, kWidth = 4;
using Row = std::array<double, kWidth>;

const std::array<Row, kRows> kDraft{{{0.5, -1, 2, 0.25}, {1.5, 0, -0.5, 1}, {0, 3, -2, 0.125}}};
// The last row's target mass lies outside the draft vocabulary: nothing is shared.
const std::array<Row, kRows> kTarget{{{1, 0.5, -1, 0}, {-0.25, 2, 0.5, -1}, {-400, -400, -400, -400}}};
constexpr std::array<double, kRows> kRest{0.5, 3, 1};  // mass of the tokens outside, before normalisation

at::Tensor matrix(const std::array<Row, kRows>& rows) {
  at::Tensor made = at::tensor(at::ArrayRef<double>(rows[0].data(), kRows * kWidth)).view({kRows, kWidth});
  return made.to(at::kFloat);
}

double lse(size_t row) {
  double total = kRest[row];
  for (double t : kTarget[row]) total += std::exp(t);
  return std::log(total);
}

// The formulas in fp64.
double alpha_of(const Row& z, size_t row) {
  double total = 0, shared = 0;
  for (double x : z) total += std::exp(x);
  for (int v = 0; v < kWidth; ++v) shared += std::min(std::exp(z[v]) / total, std::exp(kTarget[row][v] - lse(row)));
  return shared;
}

double loss_of(LkLoss::Type type, double alpha, double weight) {
  if (type == LkLoss::Type::kAlpha) return alpha > 1e-40 ? -std::log(alpha) : 0;  // below, it is 0 in fp32
  return type == LkLoss::Type::kTv ? 1 - alpha : (1 - weight) * (1 - alpha);
}

TEST(LkLoss, ValuesAndGradientsAreTheFormulas) {
  at::Tensor lses = at::tensor({lse(0), lse(1), lse(2)}).to(at::kFloat);
  for (LkLoss::Type type : {LkLoss::Type::kAlpha, LkLoss::Type::kLambda, LkLoss::Type::kTv}) {
    LkLoss loss{type, 0.75, 3};
    at::Tensor z = matrix(kDraft).requires_grad_(true), alpha = acceptance(z, matrix(kTarget), lses);
    at::Tensor rows = lk_rows(loss, alpha);
    rows.sum().backward();
    for (size_t r = 0; r < kRows; ++r) {
      double here = alpha_of(kDraft[r], r), weight = 0.75 * std::exp(-3 * here);
      auto row = static_cast<int64_t>(r);
      EXPECT_NEAR(rows[row].item<double>(), loss_of(type, here, weight), 1e-6);
      double wanted = type == LkLoss::Type::kLambda ? weight : 0;
      EXPECT_NEAR(lk_cross_entropy_weights(loss, alpha)[row].item<double>(), wanted, 1e-6);
      for (int v = 0; v < kWidth; ++v) {
        Row up = kDraft[r], down = kDraft[r];
        up[v] += 1e-5, down[v] -= 1e-5;
        double slope = (loss_of(type, alpha_of(up, r), weight) - loss_of(type, alpha_of(down, r), weight)) / 2e-5;
        EXPECT_NEAR(z.grad()[row][v].item<double>(), slope, 2e-6) << "row " << r << " column " << v;
      }
    }
  }
}

TEST(LkLoss, AnUnknownTypeIsNamedWithTheKnownOnes) {
  EXPECT_EQ(lk_type_from_name("tv"), LkLoss::Type::kTv);
  try {
    lk_type_from_name("beta");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("\"beta\" is unknown; known: none, alpha, lambda, tv"), std::string::npos);
  }
}

}  // namespace
}  // namespace sf::model
