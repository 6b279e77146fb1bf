// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "ops/checks.h"
#include "ops/kernels.h"
#include "ops/parallel.h"
#include "ops/plain.h"
#include "sf_kernels/rows.h"
#include "tensor/device.h"

namespace sf::ops {

namespace {

// Any [..., S, hd] as [batch, heads, S, hd] without moving it: 2 to 4 dimensions.
at::Tensor as_four(const at::Tensor& x) {
  at::Tensor out = x;
  while (out.dim() < 4) out = out.unsqueeze(0);
  return out.stride(3) == 1 ? out : out.contiguous();
}

// The output has the memory order of the input where that is dense.
at::Tensor turn(const at::Tensor& input, const RotaryTable& table, const at::Tensor& positions, bool inverse) {
  const at::Tensor x = as_four(input);
  at::Tensor y = at::empty_like(x);
  kernels::Rotary op;
  op.type = type_of(x);
  op.batch = static_cast<size_t>(x.size(0)), op.heads = static_cast<size_t>(x.size(1));
  op.length = static_cast<size_t>(x.size(2)), op.dims = static_cast<size_t>(x.size(3));
  op.half = static_cast<size_t>(table.cos.size(1));
  op.x = x.const_data_ptr();
  op.x_batch = static_cast<size_t>(x.stride(0)), op.x_head = static_cast<size_t>(x.stride(1));
  op.x_token = static_cast<size_t>(x.stride(2));
  op.y = y.mutable_data_ptr();
  op.y_batch = static_cast<size_t>(y.stride(0)), op.y_head = static_cast<size_t>(y.stride(1));
  op.y_token = static_cast<size_t>(y.stride(2));
  op.cos = table.cos.const_data_ptr<float>(), op.sin = table.sin.const_data_ptr<float>();
  op.positions = positions.const_data_ptr<int64_t>();
  op.position_row = positions.dim() == 2 ? static_cast<size_t>(positions.size(1)) : 0;
  op.inverse = inverse;
  kernels::rotary(op, parallel());
  return y.view(input.sizes());
}

struct Rotary : torch::autograd::Function<Rotary> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin, const at::Tensor& positions) {
    context->save_for_backward({cos, sin, positions});
    return turn(x, {cos, sin}, positions, false);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    return {turn(grads[0], {saved[0], saved[1]}, saved[2], true), {}, {}, {}};
  }
};

}  // namespace

RotaryTable make_rotary(std::span<const double> inverse_frequency, double scale, int64_t max_len) {
  const int64_t half = static_cast<int64_t>(inverse_frequency.size());
  RotaryTable table{at::empty({max_len, half}, at::kFloat), at::empty({max_len, half}, at::kFloat)};
  float* cos = table.cos.mutable_data_ptr<float>();
  float* sin = table.sin.mutable_data_ptr<float>();
  for (int64_t p = 0; p < max_len; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * inverse_frequency[static_cast<size_t>(i)];
      cos[p * half + i] = static_cast<float>(std::cos(angle) * scale);
      sin[p * half + i] = static_cast<float>(std::sin(angle) * scale);
    }
  }
  return table;
}

at::Tensor apply_rotary(const at::Tensor& x, const RotaryTable& table, const at::Tensor& positions) {
  SF_ASSERT(x.dim() >= 2 && x.dim() <= 4 && x.size(-1) >= table.rotary_dims());
  SF_ASSERT(positions.scalar_type() == at::kLong && (positions.dim() == 1 || positions.dim() == 2));
  SF_ASSERT(positions.size(-1) == x.size(-2));
  SF_ASSERT(positions.dim() == 1 || (x.dim() == 4 && positions.size(0) == x.size(0)));
  const at::Tensor at = tensor::on_host(positions).contiguous();
  const int64_t* p = at.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < at.numel(); ++i) {
    SF_CHECK(p[i] >= 0 && p[i] < table.length(), Exit::kSoftware, "position {} is outside the rotary table of {} rows",
             p[i], table.length());
  }
  if (plain_for(x)) return plain::rotary(x, table, at);
  return Rotary::apply(x, table.cos, table.sin, at);
}

}  // namespace sf::ops
