// SPDX-License-Identifier: Apache-2.0
#include "ops/head_blocks.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

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

size_t size(int64_t n) {
  return static_cast<size_t>(n);
}

template <typename Body>
void each_chunk(int64_t width, const Body& body) {
  for (int64_t column = 0; column < width; column += kColumns) body(column, std::min(kColumns, width - column));
}

// One x w^T of the sum. T: float, or uint16_t for bf16.
template <typename T>
class Part {
 public:
  Part(const at::Tensor& x, const at::Tensor& w, int64_t block)
      : x_(x), w_(w), rows_(x.size(0)), inner_(x.size(1)), width_(w.size(0)), block_(block) {}

  static int64_t panel(int64_t n, int64_t k) { return static_cast<int64_t>(Product<T>::packed_size(size(n), size(k))); }
  int64_t panels() const { return std::max(panel(kColumns, inner_), panel(inner_, kColumns)); }

  // dx and dw may be undefined.
  void begin(const HeadGradients& wanted) {
    if (!wanted.x.defined() && !wanted.w.defined()) return;
    dx_ = at::empty({rows_, inner_}, at::kFloat);
    dw_ = wanted.w;
    if (!std::is_same_v<T, float> && rows_ > block_ && dw_.defined()) dw_ = at::empty({width_, inner_}, at::kFloat);
  }
  void logits(int64_t row, int64_t count, float* z, T* panels, bool first) const {
    each_chunk(width_, [&](int64_t column, int64_t wide) {
      Product<T>::pack(w(column), size(wide), size(inner_), panels, parallel());
      const kernels::Matrix<float> to{z + column, size(width_), 1};
      if (first)
        Product<T>::gemm(x(row), size(count), panels, size(wide), size(inner_), nullptr, to, parallel());
      else
        Product<T>::gemm_add(x(row), size(count), panels, size(wide), size(inner_), to, parallel());
    });
  }
  // g: of rows [row, row + count), each width * 4 bytes long.
  void gradients(int64_t row, int64_t count, const T* g, T* panels, const HeadGradients& wanted) {
    if (wanted.x.defined()) input_gradient(row, count, g, panels);
    if (wanted.w.defined()) weight_gradient(row, count, g);
  }
  void finish(const HeadGradients& wanted) {
    if (wanted.x.defined()) wanted.x.copy_(dx_);
    if (wanted.w.defined() && !wanted.w.is_same(dw_)) wanted.w.copy_(dw_);
  }

 private:
  kernels::Matrix<const T> x(int64_t row) const {
    return {static_cast<const T*>(x_.const_data_ptr()) + row * inner_, size(inner_), 1};
  }
  kernels::Matrix<const T> w(int64_t column) const {
    return {static_cast<const T*>(w_.const_data_ptr()) + column * inner_, size(inner_), 1};
  }
  kernels::Matrix<const T> columns(const T* g, int64_t column) const {
    return {g + column, size(width_) * (sizeof(float) / sizeof(T)), 1};
  }

  // dx = g w. A chain of fp32 sums over a whole vocabulary loses digits where soft-max and label cancel: each chunk is
  // summed apart.
  void input_gradient(int64_t row, int64_t count, const T* g, T* panels) {
    float* const sum = dx_.mutable_data_ptr<float>() + row * inner_;
    if (!chunk_.defined()) chunk_ = at::empty({std::min(block_, rows_), inner_}, at::kFloat);
    float* const part = chunk_.mutable_data_ptr<float>();
    each_chunk(width_, [&](int64_t column, int64_t wide) {
      Product<T>::pack(turned(w(column)), size(inner_), size(wide), panels, parallel());
      Product<T>::gemm(columns(g, column), size(count), panels, size(inner_), size(wide), nullptr,
                       {column == 0 ? sum : part, size(inner_), 1}, parallel());
      if (column > 0) kernels::fold_add(sum, part, size(count * inner_));
    });
  }

  // dw = g^T x, the sum over rows in one chain from block to block.
  void weight_gradient(int64_t row, int64_t count, const T* g) {
    if (!rows_packed_.defined()) rows_packed_ = at::empty({panel(inner_, std::min(block_, rows_))}, x_.options());
    T* packed = static_cast<T*>(rows_packed_.mutable_data_ptr());
    Product<T>::pack(turned(x(row)), size(inner_), size(count), packed, parallel());
    each_chunk(width_, [&](int64_t column, int64_t wide) {
      const kernels::Matrix<const T> rows = turned(columns(g, column));
      if constexpr (!std::is_same_v<T, float>) {
        if (dw_.scalar_type() != at::kFloat) {
          const kernels::Matrix<T> to{static_cast<T*>(dw_.mutable_data_ptr()) + column * inner_, size(inner_), 1};
          return Product<T>::gemm_narrow(rows, size(wide), packed, size(inner_), size(count), nullptr, to, parallel());
        }
      }
      const kernels::Matrix<float> to{dw_.mutable_data_ptr<float>() + column * inner_, size(inner_), 1};
      if (row == 0)
        Product<T>::gemm(rows, size(wide), packed, size(inner_), size(count), nullptr, to, parallel());
      else
        Product<T>::gemm_add(rows, size(wide), packed, size(inner_), size(count), to, parallel());
    });
  }

  const at::Tensor x_, w_;
  const int64_t rows_, inner_, width_, block_;
  at::Tensor rows_packed_, chunk_, dx_, dw_;
};

int64_t rows_of_block(int64_t rows, int64_t width) {
  return std::clamp<int64_t>(kLogitBytes / (4 * width) / 2 * 2, 16, std::max<int64_t>(rows, 16));
}

template <typename T>
void run(const std::vector<HeadPart>& given, const std::vector<HeadGradients>& wanted, const Judge& judge) {
  const int64_t rows = given[0].x.size(0), width = given[0].w.size(0), block = rows_of_block(rows, width);
  const at::Tensor z = at::empty({std::min(block, rows), width}, at::kFloat);
  std::vector<Part<T>> parts;
  int64_t most = 0;
  bool gradient = false;
  for (size_t i = 0; i < given.size(); ++i) {
    parts.emplace_back(given[i].x, given[i].w, block).begin(wanted[i]);
    most = std::max(most, parts.back().panels());
    gradient = gradient || wanted[i].x.defined() || wanted[i].w.defined();
  }
  const at::Tensor panels = at::empty({most}, given[0].x.options());
  T* const packed = static_cast<T*>(panels.mutable_data_ptr());
  float* const logits = z.mutable_data_ptr<float>();
  for (int64_t row = 0; row < rows; row += block) {
    const int64_t count = std::min(block, rows - row);
    for (size_t i = 0; i < parts.size(); ++i) parts[i].logits(row, count, logits, packed, i == 0);
    judge(row, count, logits, gradient);
    for (size_t i = 0; i < parts.size(); ++i)
      parts[i].gradients(row, count, reinterpret_cast<const T*>(logits), packed, wanted[i]);
  }
  for (size_t i = 0; i < parts.size(); ++i) parts[i].finish(wanted[i]);
}

template <typename T>
at::Tensor all_logits(const at::Tensor& x, const at::Tensor& w) {
  const Part<T> part(x, w, x.size(0));
  const at::Tensor panels = at::empty({Part<T>::panel(kColumns, x.size(1))}, x.options());
  at::Tensor z = at::empty({x.size(0), w.size(0)}, at::kFloat);
  part.logits(0, x.size(0), z.mutable_data_ptr<float>(), static_cast<T*>(panels.mutable_data_ptr()), true);
  return z;
}

void check(const at::Tensor& x, const at::Tensor& w) {
  SF_ASSERT(x.is_contiguous() && w.is_contiguous() && x.size(1) == w.size(1) && x.scalar_type() == w.scalar_type());
}

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
    return {found[0], found[1], grads[0], {}, {}};
  }
};

}  // namespace

std::vector<HeadGradients> head_by_blocks(const std::vector<HeadPart>& parts, const Judge& judge) {
  std::vector<HeadGradients> out;
  for (const HeadPart& part : parts) {
    check(part.x, part.w);
    SF_ASSERT(part.x.size(0) == parts[0].x.size(0) && part.w.size(0) == parts[0].w.size(0));
    SF_ASSERT(part.x.scalar_type() == parts[0].x.scalar_type());
    HeadGradients wanted;
    if (part.want_x) wanted.x = at::empty(part.x.sizes(), part.x.options().requires_grad(false));
    if (part.want_w) wanted.w = at::empty(part.w.sizes(), part.w.options().requires_grad(false));
    out.push_back(std::move(wanted));
  }
  if (type_of(parts.at(0).x) == kernels::Type::kF32)
    run<float>(parts, out, judge);
  else
    run<uint16_t>(parts, out, judge);
  return out;
}

at::Tensor head_logits(const at::Tensor& x, const at::Tensor& w) {
  check(x, w);
  return type_of(x) == kernels::Type::kF32 ? all_logits<float>(x, w) : all_logits<uint16_t>(x, w);
}

at::Tensor carry(const at::Tensor& x, const at::Tensor& w, const at::Tensor& loss, const HeadGradients& gradients) {
  if (!gradients.x.defined() && !gradients.w.defined()) return loss;
  auto given = [](const at::Tensor& each) { return each.defined() ? std::optional(each) : std::nullopt; };
  return Carry::apply(x, w, loss, given(gradients.x), given(gradients.w));
}

}  // namespace sf::ops
