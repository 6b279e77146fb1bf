// SPDX-License-Identifier: Apache-2.0
#include "model/lk_loss.h"

#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"

namespace sf::model {
namespace {

at::Tensor one_minus(const at::Tensor& x) {
  return x.neg().add(1);
}

}  // namespace

LkLoss::Type lk_type_from_name(std::string_view name) {
  if (name == "none") return LkLoss::Type::kNone;
  if (name == "alpha") return LkLoss::Type::kAlpha;
  if (name == "lambda") return LkLoss::Type::kLambda;
  if (name == "tv") return LkLoss::Type::kTv;
  fail(Exit::kConfig, "training.lk_loss_type \"{}\" is unknown; known: none, alpha, lambda, tv", name);
}

at::Tensor acceptance(const at::Tensor& z, const at::Tensor& t, const at::Tensor& lse) {
  at::Tensor draft = at::softmax(z.to(at::kFloat), -1);
  at::Tensor target = t.detach().to(at::kFloat).sub(lse.detach().unsqueeze(1)).clamp_max(88).exp();
  return at::minimum(draft, target).sum(1);
}

at::Tensor lk_rows(const LkLoss& loss, const at::Tensor& alpha) {
  switch (loss.type) {
    case LkLoss::Type::kNone:
      return at::zeros_like(alpha);
    case LkLoss::Type::kAlpha:
      // A row that shares nothing is replaced before the logarithm: its gradient would be 0 / 0.
      return alpha.masked_fill(alpha.detach().le(0), 1).log().neg();
    case LkLoss::Type::kLambda:
      return one_minus(lk_cross_entropy_weights(loss, alpha)).mul(one_minus(alpha));
    case LkLoss::Type::kTv:
      return one_minus(alpha);
  }
  fail(Exit::kSoftware, "an LK loss of no type");
}

at::Tensor lk_cross_entropy_weights(const LkLoss& loss, const at::Tensor& alpha) {
  if (loss.type == LkLoss::Type::kNone) return at::ones_like(alpha).detach();
  if (loss.type != LkLoss::Type::kLambda) return at::zeros_like(alpha).detach();
  return alpha.detach().mul(-loss.kl_decay).exp().mul(loss.kl_scale);
}

}  // namespace sf::model
