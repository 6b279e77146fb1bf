// SPDX-License-Identifier: Apache-2.0
#include "ops/product.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "ops/parallel.h"
#include "sf_kernels/gemm.h"

namespace sf::ops {
namespace {

template <typename T>
kernels::Matrix<const T> matrix(const at::Tensor& t) {
  return {static_cast<const T*>(t.const_data_ptr()), static_cast<size_t>(t.stride(0)),
          static_cast<size_t>(t.stride(1))};
}

}  // namespace

at::Tensor product(const at::Tensor& x, const at::Tensor& w, at::ScalarType type, const float* bias) {
  const size_t m = static_cast<size_t>(x.size(0)), n = static_cast<size_t>(w.size(0)),
               k = static_cast<size_t>(x.size(1));
  SF_ASSERT(type == at::kFloat || type == x.scalar_type());
  at::Tensor y = at::empty({x.size(0), w.size(0)}, type);
  if (x.scalar_type() == at::kFloat) {
    at::Tensor packed = at::empty({static_cast<int64_t>(kernels::packed_f32_size(n, k))}, at::kFloat);
    float* panels = packed.mutable_data_ptr<float>();
    kernels::pack_f32(matrix<float>(w), n, k, panels, parallel());
    kernels::gemm_f32(matrix<float>(x), m, panels, n, k, bias, {y.mutable_data_ptr<float>(), n, 1}, parallel());
    return y;
  }
  at::Tensor packed = at::empty({static_cast<int64_t>(kernels::packed_bf16_size(n, k))}, at::kBFloat16);
  auto* panels = static_cast<uint16_t*>(packed.mutable_data_ptr());
  kernels::pack_bf16(matrix<uint16_t>(w), n, k, panels, parallel());
  const kernels::Matrix<const uint16_t> rows = matrix<uint16_t>(x);
  if (type == at::kFloat) {
    kernels::gemm_bf16(rows, m, panels, n, k, bias, {y.mutable_data_ptr<float>(), n, 1}, parallel());
  } else {
    auto* narrow = static_cast<uint16_t*>(y.mutable_data_ptr());
    kernels::gemm_bf16_narrow(rows, m, panels, n, k, bias, {narrow, n, 1}, parallel());
  }
  return y;
}

}  // namespace sf::ops
