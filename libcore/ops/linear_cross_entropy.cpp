// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_cross_entropy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "ops/checks.h"
#include "ops/parallel.h"
#include "ops/plain.h"
#include "sf_kernels/gemm.h"
#include "sf_kernels/loss.h"
#include "sf_kernels/optimizer.h"
#include "tensor/device.h"

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
};

template <typename T>
kernels::Matrix<const T> turned(kernels::Matrix<const T> m) {
  return {m.data, m.column, m.row};
}

// T: float, or uint16_t for bf16.
template <typename T>
class Head {
 public:
  Head(const at::Tensor& x, const at::Tensor& w, const at::Tensor& labels, const at::Tensor& weight)
      : x_(x),
        w_(w),
        labels_(labels.const_data_ptr<int64_t>()),
        weight_(weight.const_data_ptr<float>()),
        rows_(x.size(0)),
        inner_(x.size(1)),
        width_(w.size(0)),
        block_(std::clamp<int64_t>(kLogitBytes / (4 * width_) / 2 * 2, 16, std::max<int64_t>(rows_, 16))) {}

  // Gradients for an upstream scalar of 1; dx and dw may be undefined.
  void run(at::Tensor& dx, at::Tensor& dw) {
    z_ = at::empty({std::min(block_, rows_), width_}, at::kFloat);
    const size_t columns =
        std::max(Product<T>::packed_size(kColumns, size(inner_)), Product<T>::packed_size(size(inner_), kColumns));
    panels_ = at::empty({static_cast<int64_t>(columns)}, x_.options());
    if (dx.defined() || dw.defined()) {
      dx_ = at::empty({rows_, inner_}, at::kFloat);
      dw_ = std::is_same_v<T, float> || rows_ <= block_ ? dw : at::empty({width_, inner_}, at::kFloat);
    }
    for (int64_t row = 0; row < rows_; row += block_) {
      const int64_t count = std::min(block_, rows_ - row);
      logits(row, count);
      loss(row, count, dx.defined() || dw.defined());
      if (dx.defined()) input_gradient(row, count);
      if (dw.defined()) weight_gradient(row, count);
    }
    if (dx.defined()) dx.copy_(dx_);
    if (dw.defined() && !dw.is_same(dw_)) dw.copy_(dw_);
  }

  std::vector<kernels::HardRow> rows() { return std::move(found_); }

 private:
  static size_t size(int64_t n) { return static_cast<size_t>(n); }
  kernels::Matrix<const T> x(int64_t row) const {
    return {static_cast<const T*>(x_.const_data_ptr()) + row * inner_, size(inner_), 1};
  }
  kernels::Matrix<const T> w(int64_t column) const {
    return {static_cast<const T*>(w_.const_data_ptr()) + column * inner_, size(inner_), 1};
  }
  // The gradient that hard_loss left behind, from a column on.
  kernels::Matrix<const T> g(int64_t column) const {
    return {reinterpret_cast<const T*>(z_.const_data_ptr<float>()) + column, size(width_) * (sizeof(float) / sizeof(T)),
            1};
  }
  T* panels() const { return static_cast<T*>(panels_.mutable_data_ptr()); }

  template <typename Body>
  void each_chunk(const Body& body) {
    for (int64_t column = 0; column < width_; column += kColumns) body(column, std::min(kColumns, width_ - column));
  }

  void logits(int64_t row, int64_t count) {
    each_chunk([&](int64_t column, int64_t wide) {
      Product<T>::pack(w(column), size(wide), size(inner_), panels(), parallel());
      Product<T>::gemm(x(row), size(count), panels(), size(wide), size(inner_), nullptr,
                       {z_.mutable_data_ptr<float>() + column, size(width_), 1}, parallel());
    });
  }

  void loss(int64_t row, int64_t count, bool gradient) {
    found_.resize(size(rows_));
    kernels::HardLoss op;
    op.rows = size(count), op.width = size(width_);
    op.z = z_.mutable_data_ptr<float>();
    op.label = labels_ + row, op.weight = weight_ + row;
    op.gradient = gradient;
    op.type = std::is_same_v<T, float> ? kernels::Type::kF32 : kernels::Type::kBF16;
    kernels::hard_loss(op, found_.data() + row, parallel());
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
    if (!rows_packed_.defined()) {
      const size_t most = Product<T>::packed_size(size(inner_), size(std::min(block_, rows_)));
      rows_packed_ = at::empty({static_cast<int64_t>(most)}, x_.options());
    }
    T* packed = static_cast<T*>(rows_packed_.mutable_data_ptr());
    Product<T>::pack(turned(x(row)), size(inner_), size(count), packed, parallel());
    const bool narrow = dw_.scalar_type() != at::kFloat;
    if (narrow && !piece_.defined()) piece_ = at::empty({kColumns, inner_}, at::kFloat);
    each_chunk([&](int64_t column, int64_t wide) {
      float* const begin = narrow ? piece_.mutable_data_ptr<float>() : dw_.mutable_data_ptr<float>() + column * inner_;
      const kernels::Matrix<float> to{begin, size(inner_), 1};
      if (row == 0)
        Product<T>::gemm(turned(g(column)), size(wide), packed, size(inner_), size(count), nullptr, to, parallel());
      else
        Product<T>::gemm_add(turned(g(column)), size(wide), packed, size(inner_), size(count), to, parallel());
      if (narrow) dw_.narrow(0, column, wide).copy_(piece_.narrow(0, 0, wide));
    });
  }

  const at::Tensor x_, w_;
  const int64_t* labels_;
  const float* weight_;
  const int64_t rows_, inner_, width_, block_;
  at::Tensor z_, panels_, rows_packed_, piece_, chunk_, dx_, dw_;
  std::vector<kernels::HardRow> found_;
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

LinearCrossEntropy linear_cross_entropy(const at::Tensor& x, const at::Tensor& w, const at::Tensor& labels_in,
                                        const at::Tensor& weight_in) {
  SF_ASSERT(x.dim() == 2 && w.dim() == 2 && x.size(1) == w.size(1) && x.scalar_type() == w.scalar_type());
  SF_ASSERT(labels_in.dim() == 1 && labels_in.size(0) == x.size(0) && weight_in.sizes() == labels_in.sizes());
  const at::Tensor labels = tensor::on_host(labels_in).to(at::kLong).contiguous();
  const at::Tensor weight = tensor::on_host(weight_in.detach()).to(at::kFloat).contiguous();
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const int64_t label = labels.const_data_ptr<int64_t>()[i];
    SF_CHECK(label >= 0 && label < w.size(0), Exit::kSoftware, "label {} is outside the vocabulary of {}", label,
             w.size(0));
  }
  if (!x.is_cpu()) return plain::linear_cross_entropy(x, w, labels, weight);
  const bool graph = at::GradMode::is_enabled();
  at::Tensor dx, dw;
  if (graph && x.requires_grad()) dx = at::empty(x.sizes(), x.options().requires_grad(false));
  if (graph && w.requires_grad()) dw = at::empty(w.sizes(), w.options().requires_grad(false));
  std::vector<kernels::HardRow> rows;
  const at::Tensor flat = x.detach().contiguous(), table = w.detach().contiguous();
  if (type_of(x) == kernels::Type::kF32) {
    Head<float> head(flat, table, labels, weight);
    head.run(dx, dw);
    rows = head.rows();
  } else {
    Head<uint16_t> head(flat, table, labels, weight);
    head.run(dx, dw);
    rows = head.rows();
  }
  LinearCrossEntropy out{{}, at::empty({x.size(0)}, at::kFloat), at::empty({x.size(0)}, at::kLong)};
  double total = 0;
  for (int64_t i = 0; i < x.size(0); ++i) {
    const kernels::HardRow& row = rows[static_cast<size_t>(i)];
    const float share = weight.const_data_ptr<float>()[i];
    total += static_cast<double>(row.loss);
    out.nll.mutable_data_ptr<float>()[i] = share != 0 ? row.nll : 0;
    out.argmax.mutable_data_ptr<int64_t>()[i] = row.argmax;
  }
  out.loss = at::scalar_tensor(total, at::kFloat);
  auto given = [](const at::Tensor& each) { return each.defined() ? std::optional(each) : std::nullopt; };
  if (dx.defined() || dw.defined()) out.loss = Carry::apply(x, w, out.loss, given(dx), given(dw));
  return out;
}

}  // namespace sf::ops
