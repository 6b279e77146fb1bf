// SPDX-License-Identifier: Apache-2.0
#include "ops/delta_rule.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstddef>
#include <type_traits>

#include "ops/checks.h"
#include "ops/kernels.h"
#include "ops/parallel.h"
#include "ops/plain_delta.h"
#include "sf_kernels/delta.h"

namespace sf::ops {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

size_t extent(int64_t n) {
  return static_cast<size_t>(n);
}

// Byte offsets of k and v behind q.
template <typename T>
void point(T* mixed, const DeltaHeads& heads, size_t item, T** q, T** k, T** v) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  const size_t keys = extent(heads.key_heads * heads.key_dim) * item;
  Byte* first = static_cast<Byte*>(mixed);
  *q = first, *k = first + keys, *v = first + 2 * keys;
}

kernels::Delta describe(const at::Tensor& mixed, const at::Tensor& decay, const at::Tensor& beta,
                        const DeltaHeads& heads) {
  kernels::Delta op;
  op.type = type_of(mixed);
  op.batch = extent(mixed.size(0)), op.length = extent(mixed.size(1));
  op.key_heads = extent(heads.key_heads), op.value_heads = extent(heads.value_heads);
  op.key_dim = extent(heads.key_dim), op.value_dim = extent(heads.value_dim);
  op.batch_step = extent(mixed.stride(0)), op.token_step = extent(mixed.stride(1));
  point(mixed.const_data_ptr(), heads, mixed.itemsize(), &op.q, &op.k, &op.v);
  op.decay = decay.const_data_ptr<float>(), op.beta = beta.const_data_ptr<float>();
  return op;
}

at::Tensor empty_like_out(const at::Tensor& mixed, const DeltaHeads& heads) {
  return at::empty({mixed.size(0), mixed.size(1), heads.value_heads, heads.value_dim}, mixed.options());
}

void check(const at::Tensor& mixed, const at::Tensor& decay, const at::Tensor& beta, const DeltaHeads& heads) {
  SF_ASSERT(heads.key_heads > 0 && heads.value_heads % heads.key_heads == 0);
  SF_ASSERT(mixed.dim() == 3 && mixed.size(2) == heads.channels() && decay.sizes() == beta.sizes());
  SF_ASSERT(decay.dim() == 3 && decay.size(0) == mixed.size(0) && decay.size(1) == mixed.size(1));
  SF_ASSERT(decay.size(2) == heads.value_heads && decay.scalar_type() == at::kFloat);
  SF_ASSERT(beta.scalar_type() == at::kFloat);
}

DeltaHeads heads_of(AutogradContext* context) {
  const auto& data = context->saved_data;
  return {data.at("key_heads").toInt(), data.at("value_heads").toInt(), data.at("key_dim").toInt(),
          data.at("value_dim").toInt()};
}

struct DeltaRule : torch::autograd::Function<DeltaRule> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& mixed_in, const at::Tensor& decay_in,
                            const at::Tensor& beta_in, const DeltaHeads& heads) {
    const at::Tensor mixed = mixed_in.contiguous(), decay = decay_in.contiguous(), beta = beta_in.contiguous();
    const kernels::Delta op = describe(mixed, decay, beta, heads);
    at::Tensor out = empty_like_out(mixed, heads), states;
    const bool kept = mixed_in.requires_grad() || decay_in.requires_grad() || beta_in.requires_grad();
    if (kept) states = at::empty({static_cast<int64_t>(kernels::delta_state_floats(op))}, at::kFloat);
    kernels::delta_chunks(op, out.mutable_data_ptr(), kept ? states.mutable_data_ptr<float>() : nullptr, parallel());
    context->save_for_backward({mixed, decay, beta, states});
    auto& data = context->saved_data;
    data["key_heads"] = heads.key_heads, data["value_heads"] = heads.value_heads;
    data["key_dim"] = heads.key_dim, data["value_dim"] = heads.value_dim;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &mixed = saved[0], g = grads[0].contiguous();
    const DeltaHeads heads = heads_of(context);
    at::Tensor dmixed = at::empty(mixed.sizes(), mixed.options());
    at::Tensor ddecay = at::empty(saved[1].sizes(), at::kFloat), dbeta = at::empty(saved[1].sizes(), at::kFloat);
    kernels::DeltaGradient gradient;
    gradient.g = g.const_data_ptr();
    gradient.states = saved[3].const_data_ptr<float>();
    gradient.batch_step = extent(dmixed.stride(0)), gradient.token_step = extent(dmixed.stride(1));
    point(dmixed.mutable_data_ptr(), heads, dmixed.itemsize(), &gradient.dq, &gradient.dk, &gradient.dv);
    gradient.ddecay = ddecay.mutable_data_ptr<float>(), gradient.dbeta = dbeta.mutable_data_ptr<float>();
    kernels::delta_backward(describe(mixed, saved[1], saved[2], heads), gradient, parallel());
    return {dmixed, ddecay, dbeta, {}};
  }
};

kernels::Convolution describe(const at::Tensor& x, const at::Tensor& taps, int64_t dilation) {
  kernels::Convolution op;
  op.type = type_of(x);
  op.batch = extent(x.size(0)), op.length = extent(x.size(1)), op.channels = extent(x.size(2));
  op.taps = extent(taps.size(0)), op.dilation = extent(dilation);
  op.x = x.const_data_ptr();
  op.x_batch = extent(x.stride(0)), op.x_token = extent(x.stride(1));
  op.weight = taps.const_data_ptr<float>();
  return op;
}

struct ConvSilu : torch::autograd::Function<ConvSilu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in, const at::Tensor& weight,
                            int64_t dilation) {
    const at::Tensor x = x_in.stride(2) == 1 ? x_in : x_in.contiguous();
    const at::Tensor taps = weight.to(at::kFloat).t().contiguous();
    at::Tensor y = at::empty(x.sizes(), x.options());
    kernels::conv_silu(describe(x, taps, dilation), y.mutable_data_ptr(), parallel());
    context->save_for_backward({x, taps});
    context->saved_data["dilation"] = dilation;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &taps = saved[1], g = grads[0].contiguous();
    at::Tensor dx = at::empty(x.sizes(), x.options()), dtaps = at::empty(taps.sizes(), at::kFloat);
    kernels::conv_silu_backward(describe(x, taps, context->saved_data["dilation"].toInt()), g.const_data_ptr(),
                                dx.mutable_data_ptr(), dtaps.mutable_data_ptr<float>(), parallel());
    return {dx, dtaps.t().contiguous().to(x.scalar_type()), {}};
  }
};

}  // namespace

at::Tensor delta_rule(const at::Tensor& mixed, const at::Tensor& decay, const at::Tensor& beta,
                      const DeltaHeads& heads) {
  check(mixed, decay, beta, heads);
  if (plain_for(mixed)) return plain::delta_rule(mixed, decay, beta, heads);
  return DeltaRule::apply(mixed, decay, beta, heads);
}

at::Tensor delta_steps(const at::Tensor& mixed_in, const at::Tensor& decay, const at::Tensor& beta,
                       const DeltaHeads& heads, at::Tensor& state) {
  check(mixed_in, decay, beta, heads);
  SF_ASSERT(state.is_contiguous() && state.scalar_type() == at::kFloat);
  SF_ASSERT(state.numel() == mixed_in.size(0) * heads.value_heads * heads.key_dim * heads.value_dim);
  const at::Tensor mixed = mixed_in.contiguous(), g = decay.contiguous(), b = beta.contiguous();
  at::Tensor out = empty_like_out(mixed, heads);
  kernels::delta_steps(describe(mixed, g, b, heads), out.mutable_data_ptr(), state.mutable_data_ptr<float>(),
                       parallel());
  return out;
}

at::Tensor conv_silu(const at::Tensor& x, const at::Tensor& weight, int64_t dilation) {
  SF_ASSERT(x.dim() == 3 && weight.dim() == 2 && weight.size(0) == x.size(2) && dilation > 0);
  SF_ASSERT(x.scalar_type() == weight.scalar_type());
  if (plain_for(x)) return plain::conv_silu(x, weight, dilation);
  return ConvSilu::apply(x, weight, dilation);
}

}  // namespace sf::ops
