// SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <ATen/ops/from_blob.h>

#include <cmath>

namespace sf::golden {

at::Tensor load(const ckpt::SafetensorsFile& file, const std::string& name) {
  TensorView view = file.view(name);
  at::ScalarType type = at::kFloat;
  if (view.dtype == Dtype::kI64) type = at::kLong;
  if (view.dtype == Dtype::kBool) type = at::kBool;
  if (view.dtype == Dtype::kU8) type = at::kByte;
  return at::from_blob(const_cast<std::byte*>(view.data), view.shape, at::TensorOptions(type)).clone();
}

Outcome near(const std::string& what, double found, double wanted, double relative) {
  if (relative >= 1e-12) note_error(what, std::abs(found - wanted), relative * std::abs(wanted));  // else exact
  if (std::abs(found - wanted) <= relative * std::abs(wanted)) return Outcome::passed();
  return Outcome::failed(what + " is " + double_text(found) + ", wanted " + double_text(wanted));
}

Outcome same(const std::string& what, const at::Tensor& found, const at::Tensor& wanted, double absolute,
             double relative) {
  at::Tensor a = found.to(at::kFloat).contiguous(), b = wanted.to(at::kFloat).contiguous();
  if (a.sizes() != b.sizes()) return Outcome::failed(what + " has another shape");
  return close(what, a.const_data_ptr<float>(), b.const_data_ptr<float>(), static_cast<size_t>(a.numel()), absolute,
               relative);
}

Outcome first_failure(std::initializer_list<Outcome> outcomes) {
  for (const Outcome& outcome : outcomes)
    if (outcome.verdict != Outcome::kPassed) return outcome;
  return Outcome::passed();
}

}  // namespace sf::golden
