// SPDX-License-Identifier: Apache-2.0
#include "ops/vocabulary_head.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/fault.h"
#include "ops/checks.h"
#include "ops/kernels.h"
#include "ops/parallel.h"
#include "ops/plain.h"
#include "ops/product.h"
#include "sf_kernels/loss.h"
#include "tensor/device.h"

namespace sf::ops {
namespace {

static_assert(sizeof(kernels::LabelRow) == 4 * 4);

kernels::LabelRow* rows_of(const at::Tensor& seen) {
  return static_cast<kernels::LabelRow*>(seen.mutable_data_ptr());
}

}  // namespace

VocabularyHead::VocabularyHead(const at::Tensor& x, const at::Tensor& labels, int64_t vocab, bool gradient)
    : x_(x.detach().contiguous()), labels_(tensor::on_host(labels).to(at::kLong).contiguous()), vocab_(vocab) {
  SF_ASSERT(x_.dim() == 2 && labels_.dim() == 1 && labels_.size(0) == x_.size(0));
  type_of(x_);
  for (int64_t r = 0; r < labels_.size(0); ++r) {
    int64_t label = labels_.const_data_ptr<int64_t>()[r];
    SF_ASSERT(label >= 0 && label < vocab);
  }
  if (plain_for(x_)) {
    rows_ = std::make_shared<plain::LabelRows>(plain::nothing_seen(x_, gradient));
    labels_ = tensor::beside(labels_, x_);
    return;
  }
  seen_ = at::empty({x_.size(0), 4}, at::kInt);
  for (int64_t r = 0; r < x_.size(0); ++r) new (rows_of(seen_) + r) kernels::LabelRow;
  if (!gradient) return;
  sum_ = at::zeros(x_.sizes(), at::kFloat);
  at_labels_ = at::empty(x_.sizes(), x_.options());
}

void VocabularyHead::advance(int64_t first, const at::Tensor& rows) {
  bool in_order = first == next_ % vocab_ || fault("ops.skip_chunk");
  SF_CHECK(in_order && rows.size(0) > 0 && first + rows.size(0) <= vocab_, Exit::kSoftware,
           "a head of {} rows: wanted the chunk from row {}, found rows {} to {}", vocab_, next_ % vocab_, first,
           first + rows.size(0));
  SF_ASSERT(rows.size(1) == x_.size(1) && rows.scalar_type() == x_.scalar_type());
  next_ += rows.size(0);
}

void VocabularyHead::see(int64_t first, const at::Tensor& rows) {
  advance(first, rows);
  if (x_.size(0) == 0) return;
  if (rows_) {
    rows_ = std::make_shared<plain::LabelRows>(plain::see(*rows_, x_, rows, labels_, first));
    return;
  }
  at::Tensor z = product(x_, rows, at::kFloat), shrink;
  kernels::LabelLoss op{static_cast<size_t>(z.size(0)), static_cast<size_t>(z.size(1)), z.mutable_data_ptr<float>(),
                        labels_.const_data_ptr<int64_t>(), first};
  if (sum_.defined()) {
    shrink = at::empty({x_.size(0), 1}, at::kFloat);
    op.shrink = shrink.mutable_data_ptr<float>();
  }
  kernels::label_loss(op, rows_of(seen_), parallel());
  if (!sum_.defined()) return;
  keep_labels(first, rows);
  z = z.to(x_.scalar_type());
  sum_.mul_(shrink);
  sum_.add_(product(z, rows.t(), at::kFloat));
}

void VocabularyHead::keep_labels(int64_t first, const at::Tensor& rows) {
  const at::Tensor from = rows.contiguous();
  const size_t bytes = static_cast<size_t>(x_.size(1)) * x_.element_size();
  for (int64_t r = 0; r < x_.size(0); ++r) {
    const int64_t label = labels_.const_data_ptr<int64_t>()[r] - first;
    if (label < 0 || label >= from.size(0)) continue;
    std::memcpy(static_cast<std::byte*>(at_labels_.mutable_data_ptr()) + static_cast<size_t>(r) * bytes,
                static_cast<const std::byte*>(from.const_data_ptr()) + static_cast<size_t>(label) * bytes, bytes);
  }
}

at::Tensor VocabularyHead::nll() const {
  SF_ASSERT(next_ >= vocab_);
  if (rows_) return plain::nll(*rows_);
  at::Tensor values = at::empty({x_.size(0)}, at::kFloat);
  for (int64_t r = 0; r < x_.size(0); ++r) {
    const kernels::LabelRow& row = rows_of(seen_)[r];
    double log_total = std::log(static_cast<double>(row.total));
    values.mutable_data_ptr<float>()[r] =
        static_cast<float>(log_total + (static_cast<double>(row.top) - static_cast<double>(row.at_label)));
  }
  return values;
}

at::Tensor VocabularyHead::top1() const {
  SF_ASSERT(next_ >= vocab_);
  if (rows_) return rows_->argmax;
  at::Tensor ids = at::empty({x_.size(0)}, at::kLong);
  for (int64_t r = 0; r < x_.size(0); ++r) ids.mutable_data_ptr<int64_t>()[r] = rows_of(seen_)[r].argmax;
  return ids;
}

at::Tensor VocabularyHead::gradient(const at::Tensor& upstream) const {
  SF_ASSERT(next_ == vocab_ && upstream.scalar_type() == at::kFloat && upstream.numel() == x_.size(0));
  if (rows_) return plain::gradient(*rows_, upstream).to(x_.scalar_type());
  SF_ASSERT(sum_.defined());
  at::Tensor of_sum = at::empty({x_.size(0), 1}, at::kFloat), of_label = at::empty({x_.size(0), 1}, at::kFloat);
  const at::Tensor seed = upstream.contiguous();
  for (int64_t r = 0; r < x_.size(0); ++r) {
    const kernels::LabelRow& row = rows_of(seen_)[r];
    const float share = seed.const_data_ptr<float>()[r] / row.total;
    of_sum.mutable_data_ptr<float>()[r] = share;
    of_label.mutable_data_ptr<float>()[r] = share * (std::exp(row.at_label - row.top) - row.total);
  }
  at::Tensor out = sum_.mul(of_sum);
  out.add_(at_labels_.mul(of_label));
  return out.to(x_.scalar_type());
}

namespace {

struct Held : torch::CustomClassHolder {
  explicit Held(VocabularyHead given) : head(std::move(given)) {}
  VocabularyHead head;
};

template <typename Body>
void by_chunks(const at::Tensor& table, int64_t chunk, const Body& body) {
  for (int64_t lo = 0; lo < table.size(0); lo += chunk)
    body(lo, table.narrow(0, lo, std::min(chunk, table.size(0) - lo)));
}

struct WholeTable : torch::autograd::Function<WholeTable> {
  using Context = torch::autograd::AutogradContext;
  using List = torch::autograd::variable_list;

  static List forward(Context* context, const at::Tensor& x, const at::Tensor& table, const at::Tensor& labels,
                      int64_t chunk, bool gradient) {
    VocabularyHead head(x, labels, table.size(0), gradient);
    by_chunks(table, chunk, [&](int64_t lo, const at::Tensor& rows) { head.see(lo, rows); });
    List out{head.nll(), head.top1()};
    context->mark_non_differentiable({out[1]});
    context->saved_data["head"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(std::move(head)));
    return out;
  }

  static List backward(Context* context, List gradients) {
    const auto* held = static_cast<const Held*>(context->saved_data["head"].toCapsule().get());
    return {held->head.gradient(gradients[0]), {}, {}, {}, {}};
  }
};

}  // namespace

HeadLoss vocabulary_head(const at::Tensor& x, const at::Tensor& table, const at::Tensor& labels, int64_t chunk) {
  SF_ASSERT(chunk > 0 && !table.requires_grad());
  const bool gradient = at::GradMode::is_enabled() && x.requires_grad();
  std::vector<at::Tensor> out = WholeTable::apply(x, table, labels, chunk, gradient);
  return {out[0], out[1]};
}

}  // namespace sf::ops
