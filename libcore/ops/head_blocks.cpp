// SPDX-License-Identifier: Apache-2.0
#include "ops/head_blocks.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "ops/checks.h"
#include "ops/parallel.h"
#include "sf_kernels/gemm.h"
#include "sf_kernels/optimizer.h"

namespace sf::ops {
namespace {

constexpr int64_t kLogitBytes = int64_t{64} << 20;
constexpr int64_t kColumns = 2048;  // of the vocabulary at a time: what is packed of w, and fp32 rows of its gradient

template <typename T>
struct Product;
template <>
struct Product<float> {
  static size_t packed_size(size_t n, size_t k) { return kernels::packed_f32_size(n, k); }
  static constexpr auto pack = kernels::pack_f32;
  static constexpr auto gemm = kernels::gemm_f32;
  static constexpr auto gemm_add = kernels::gemm_f32_add;
};
template <>
struct Product<uint16_t> {
  static size_t packed_size(size_t n, size_t k) { return kernels::packed_bf16_size(n, k); }
  static constexpr auto pack = kernels::pack_bf16;
  static constexpr auto gemm = kernels::gemm_bf16;
  static constexpr auto gemm_add = kernels::gemm_bf16_add;
  static constexpr auto gemm_narrow = kernels::gemm_bf16_narrow;
};

template <typename T>
kernels::Matrix<const T> turned(kernels::Matrix<const T> m) {
  return {m.data, m.column, m.row};
}

// T: float, or uint16_t for bf16.
template <typename T>
class Head {
 public:
  Head(const at::Tensor& x, const at::Tensor& w)
      : x_(x),
        w_(w),
        rows_(x.size(0)),
        inner_(x.size(1)),
        width_(w.size(0)),
        block_(std::clamp<int64_t>(kLogitBytes / (4 * width_) / 2 * 2, 16, std::max<int64_t>(rows_, 16))) {}

  // dx and dw may be undefined.
  void run(at::Tensor& dx, at::Tensor& dw, const Judge& judge) {
    const bool gradient = dx.defined() || dw.defined();
    z_ = at::empty({std::min(block_, rows_), width_}, at::kFloat);
    panels_ = at::empty({std::max(panel(kColumns, inner_), panel(inner_, kColumns))}, x_.options());
    if (gradient) {
      dx_ = at::empty({rows_, inner_}, at::kFloat);
      dw_ = std::is_same_v<T, float> || rows_ <= block_ ? dw : at::empty({width_, inner_}, at::kFloat);
    }
    for (int64_t row = 0; row < rows_; row += block_) {
      const int64_t count = std::min(block_, rows_ - row);
      logits(row, count, z_.mutable_data_ptr<float>());
      judge(row, count, z_.mutable_data_ptr<float>(), gradient);
      if (dx.defined()) input_gradient(row, count);
      if (dw.defined()) weight_gradient(row, count);
    }
    if (dx.defined()) dx.copy_(dx_);
    if (dw.defined() && !dw.is_same(dw_)) dw.copy_(dw_);
  }

  at::Tensor all_logits() {
    panels_ = at::empty({panel(kColumns, inner_)}, x_.options());
    at::Tensor z = at::empty({rows_, width_}, at::kFloat);
    logits(0, rows_, z.mutable_data_ptr<float>());
    return z;
  }

 private:
  static size_t size(int64_t n) { return static_cast<size_t>(n); }
  static int64_t panel(int64_t n, int64_t k) { return static_cast<int64_t>(Product<T>::packed_size(size(n), size(k))); }
  kernels::Matrix<const T> x(int64_t row) const {
    return {static_cast<const T*>(x_.const_data_ptr()) + row * inner_, size(inner_), 1};
  }
  kernels::Matrix<const T> w(int64_t column) const {
    return {static_cast<const T*>(w_.const_data_ptr()) + column * inner_, size(inner_), 1};
  }
  // The gradient that the judge left behind, from a column on.
  kernels::Matrix<const T> g(int64_t column) const {
    return {reinterpret_cast<const T*>(z_.const_data_ptr<float>()) + column, size(width_) * (sizeof(float) / sizeof(T)),
            1};
  }
  T* panels() const { return static_cast<T*>(panels_.mutable_data_ptr()); }

  template <typename Body>
  void each_chunk(const Body& body) {
    for (int64_t column = 0; column < width_; column += kColumns) body(column, std::min(kColumns, width_ - column));
  }

  void logits(int64_t row, int64_t count, float* z) {
    each_chunk([&](int64_t column, int64_t wide) {
      Product<T>::pack(w(column), size(wide), size(inner_), panels(), parallel());
      Product<T>::gemm(x(row), size(count), panels(), size(wide), size(inner_), nullptr, {z + column, size(width_), 1},
                       parallel());
    });
  }

  // dx = g w. A chain of fp32 sums over a whole vocabulary loses digits where soft-max and label cancel: each chunk is
  // summed apart.
  void input_gradient(int64_t row, int64_t count) {
    float* const sum = dx_.mutable_data_ptr<float>() + row * inner_;
    if (!chunk_.defined()) chunk_ = at::empty({std::min(block_, rows_), inner_}, at::kFloat);
    float* const part = chunk_.mutable_data_ptr<float>();
    each_chunk([&](int64_t column, int64_t wide) {
      Product<T>::pack(turned(w(column)), size(inner_), size(wide), panels(), parallel());
      Product<T>::gemm(g(column), size(count), panels(), size(inner_), size(wide), nullptr,
                       {column == 0 ? sum : part, size(inner_), 1}, parallel());
      if (column > 0) kernels::fold_add(sum, part, size(count * inner_));
    });
  }

  // dw = g^T x, the sum over rows in one chain from block to block.
  void weight_gradient(int64_t row, int64_t count) {
    if (!rows_packed_.defined()) rows_packed_ = at::empty({panel(inner_, std::min(block_, rows_))}, x_.options());
    T* packed = static_cast<T*>(rows_packed_.mutable_data_ptr());
    Product<T>::pack(turned(x(row)), size(inner_), size(count), packed, parallel());
    each_chunk([&](int64_t column, int64_t wide) {
      if constexpr (!std::is_same_v<T, float>) {
        if (dw_.scalar_type() != at::kFloat) {
          const kernels::Matrix<T> to{static_cast<T*>(dw_.mutable_data_ptr()) + column * inner_, size(inner_), 1};
          return Product<T>::gemm_narrow(turned(g(column)), size(wide), packed, size(inner_), size(count), nullptr, to,
                                         parallel());
        }
      }
      const kernels::Matrix<float> to{dw_.mutable_data_ptr<float>() + column * inner_, size(inner_), 1};
      if (row == 0)
        Product<T>::gemm(turned(g(column)), size(wide), packed, size(inner_), size(count), nullptr, to, parallel());
      else
        Product<T>::gemm_add(turned(g(column)), size(wide), packed, size(inner_), size(count), to, parallel());
    });
  }

  const at::Tensor x_, w_;
  const int64_t rows_, inner_, width_, block_;
  at::Tensor z_, panels_, rows_packed_, chunk_, dx_, dw_;
};

// Forward found the gradients; this only carries them.
struct Carry : torch::autograd::Function<Carry> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor&, const at::Tensor&,
                            const at::Tensor& loss, const std::optional<at::Tensor>& dx,
                            const std::optional<at::Tensor>& dw) {
    context->save_for_backward({dx.value_or(at::Tensor()), dw.value_or(at::Tensor())});
    return loss.clone();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const float upstream = grads[0].item<float>();
    torch::autograd::variable_list found = context->get_saved_variables();
    if (upstream != 1)
      for (at::Tensor& each : found)
        if (each.defined()) each = each.mul(upstream);
    return {found[0], found[1], {}, {}, {}};
  }
};

}  // namespace

HeadGradients head_by_blocks(const at::Tensor& x, const at::Tensor& w, bool want_x, bool want_w, const Judge& judge) {
  SF_ASSERT(x.is_contiguous() && w.is_contiguous() && x.size(1) == w.size(1) && x.scalar_type() == w.scalar_type());
  HeadGradients out;
  if (want_x) out.x = at::empty(x.sizes(), x.options().requires_grad(false));
  if (want_w) out.w = at::empty(w.sizes(), w.options().requires_grad(false));
  if (type_of(x) == kernels::Type::kF32)
    Head<float>(x, w).run(out.x, out.w, judge);
  else
    Head<uint16_t>(x, w).run(out.x, out.w, judge);
  return out;
}

at::Tensor head_logits(const at::Tensor& x, const at::Tensor& w) {
  SF_ASSERT(x.is_contiguous() && w.is_contiguous() && x.size(1) == w.size(1) && x.scalar_type() == w.scalar_type());
  return type_of(x) == kernels::Type::kF32 ? Head<float>(x, w).all_logits() : Head<uint16_t>(x, w).all_logits();
}

at::Tensor carry(const at::Tensor& x, const at::Tensor& w, const at::Tensor& loss, const HeadGradients& gradients) {
  if (!gradients.x.defined() && !gradients.w.defined()) return loss;
  auto given = [](const at::Tensor& each) { return each.defined() ? std::optional(each) : std::nullopt; };
  return Carry::apply(x, w, loss, given(gradients.x), given(gradients.w));
}

}  // namespace sf::ops
