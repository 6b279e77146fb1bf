// SPDX-License-Identifier: Apache-2.0
// A delta net layer in inference (models_text_scoring 3.3): token by token, so that a row's bits depend on its own
// sequence alone, however that is cut.
#pragma once
#include <string>

#include "arch/decoder.h"
#include "gen/cache.h"
#include "gen/linear.h"
#include "gen/weights.h"

namespace sf::gen {

class Rows;

class DeltaNet {
 public:
  // `prefix`: "model.layers.3.linear_attn."; in: width of what it reads.
  DeltaNet(const Weights& weights, const std::string& prefix, const arch::DeltaNet& shape, int64_t in, double eps);
  // x: normed input [rows, in] -> [rows, in]; `layer`: of the caches' recurrent layers.
  at::Tensor mix(const at::Tensor& x, const Rows& rows, int64_t layer) const;
  size_t adapt(const LiveAdapter& adapter);  // as Linear::adapt
  Recurrent fresh() const;                   // a sequence's, at its beginning

 private:
  struct Projected {
    DeltaRows rows;
    at::Tensor z;  // [rows, value_heads, value_dim]
  };
  Projected project(const at::Tensor& x) const;

  arch::DeltaNet shape_;
  double eps_;
  Linear in_, out_;
  at::Tensor taps_, a_log_, dt_bias_, norm_;
};

}  // namespace sf::gen
