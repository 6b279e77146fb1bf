// SPDX-License-Identifier: Apache-2.0
// Losses of the acceptance rate itself (eagle_dflash 1.5, "LK"). alpha is what a row's sampled token is accepted with:
// the mass that draft and target share.
#pragma once
#include <string_view>

#include "tensor/tensor.h"

namespace sf::model {

struct LkLoss {
  // kAlpha: -log alpha (0 where alpha is 0) · kTv: 1 - alpha · kLambda: w CE + (1 - w)(1 - alpha), w = kl_scale
  // exp(-kl_decay alpha) without gradient; w is of the row itself, so that a row's loss does not depend on its
  // neighbours.
  enum class Type { kNone, kAlpha, kLambda, kTv } type = Type::kNone;
  double kl_scale = 1, kl_decay = 1;

  bool asks_cross_entropy() const { return type == Type::kNone || type == Type::kLambda; }
};
// "none", "alpha", "lambda" or "tv"; kConfig naming them otherwise.
LkLoss::Type lk_type_from_name(std::string_view name);

// F32 [N], differentiable in z: sum over v of min(softmax(z), e^(t - lse)). z, t: [N, Vd]; lse: F32 [N], of t over the
// whole vocabulary; t and lse without gradient.
at::Tensor acceptance(const at::Tensor& z, const at::Tensor& t, const at::Tensor& lse);
// F32 [N], differentiable: the part of each row's loss that alpha makes (kNone has none).
at::Tensor lk_rows(const LkLoss& loss, const at::Tensor& alpha);
// F32 [N], no gradient: what each row's cross-entropy weighs.
at::Tensor lk_cross_entropy_weights(const LkLoss& loss, const at::Tensor& alpha);

}  // namespace sf::model
