// SPDX-License-Identifier: Apache-2.0
#include "tensor/compare.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/shape.h"

namespace sf::tensor {

namespace {

std::string place(const at::Tensor& t, int64_t flat) {
  Shape index(t.dim());
  for (int64_t d = t.dim() - 1; d >= 0; --d) {
    index[d] = flat % t.size(d);
    flat /= t.size(d);
  }
  return to_string(index);
}

std::string element(const at::Tensor& contiguous, int64_t flat) {
  const at::Tensor one = contiguous.view({-1}).narrow(0, flat, 1);
  if (!one.is_floating_point()) return fmt::format("{}", one.to(at::kLong).const_data_ptr<int64_t>()[0]);
  return fmt::format("{:.9g}", one.to(at::kDouble).const_data_ptr<double>()[0]);
}

}  // namespace

bool bit_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

std::optional<std::string> first_difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type()) {
    return fmt::format("type {} and {}", c10::toString(a.scalar_type()), c10::toString(b.scalar_type()));
  }
  if (a.sizes() != b.sizes()) {
    return fmt::format("shape {} and {}", to_string(a.sizes().vec()), to_string(b.sizes().vec()));
  }
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  const auto* p = static_cast<const std::byte*>(x.const_data_ptr());
  const auto* q = static_cast<const std::byte*>(y.const_data_ptr());
  const size_t width = x.element_size();
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (std::memcmp(p + i * width, q + i * width, width) == 0) continue;
    return fmt::format("{}: {} and {}", place(x, i), element(x, i), element(y, i));
  }
  return std::nullopt;
}

double max_abs_difference(const at::Tensor& a, const at::Tensor& b) {
  SF_ASSERT(a.sizes() == b.sizes());
  const at::Tensor x = a.detach().to(at::kDouble).contiguous(), y = b.detach().to(at::kDouble).contiguous();
  const double* p = x.const_data_ptr<double>();
  const double* q = y.const_data_ptr<double>();
  double most = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (p[i] == q[i] || (std::isnan(p[i]) && std::isnan(q[i]))) continue;
    const double difference = std::abs(p[i] - q[i]);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    most = std::max(most, difference);
  }
  return most;
}

}  // namespace sf::tensor
