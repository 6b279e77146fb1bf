// SPDX-License-Identifier: Apache-2.0
// Many MLPs, of which a router chooses some for each token. Source: models_text_scoring 3.1, 3.6.
#pragma once
#include <functional>
#include <vector>

#include "arch/adapter.h"
#include "arch/decoder.h"
#include "tensor/tensor.h"

namespace sf::model {

// One linear layer of every expert: the fused [experts, out, in], and its adapter, if it has one (A and B as
// arch::Adapter lays them out).
class ExpertBank {
 public:
  explicit ExpertBank(const at::Tensor& weight);
  void adapt(const at::Tensor& a, const at::Tensor& b, const arch::Adapter& adapter);
  at::Tensor apply(int64_t expert, const at::Tensor& x) const;  // [n, in] -> [n, out]

 private:
  std::vector<at::Tensor> weight_, a_, b_;
  double scale_ = 1;
};

// What one expert makes of the rows that chose it: [n, H] -> [n, H].
using OneExpert = std::function<at::Tensor(int64_t expert, const at::Tensor& rows)>;
// x [N, H], the router's scores [N, experts] -> [N, H]: each token's chosen experts, weighed by their probabilities,
// added up in ascending order of experts. Soft-max in fp32 over all experts. Every row depends on its own token alone.
at::Tensor mix_experts(const at::Tensor& x, const at::Tensor& scores, const OneExpert& one,
                       const arch::Experts& experts);

}  // namespace sf::model
