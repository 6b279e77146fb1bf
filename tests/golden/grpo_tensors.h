// SPDX-License-Identifier: Apache-2.0
// Tensors of the cases on reinforcement, as fp64.
#pragma once
#include <string>
#include <vector>

#include "ckpt/safetensors.h"
#include "golden.h"

namespace sf::golden {

inline std::vector<double> numbers(const ckpt::SafetensorsFile& file, const std::string& name) {
  const TensorView view = file.view(name);
  const auto* values = reinterpret_cast<const float*>(view.data);
  return {values, values + numel(view.shape)};
}

inline std::vector<uint8_t> mask_of(const ckpt::SafetensorsFile& file, const std::string& name) {
  std::vector<uint8_t> mask;
  for (double value : numbers(file, name)) mask.push_back(value != 0);
  return mask;
}

inline Outcome close(const std::string& what, const std::vector<double>& found, const std::vector<double>& wanted,
                     double absolute, double relative) {
  if (found.size() != wanted.size()) return Outcome::failed(what + ": another number of values");
  const std::vector<float> a(found.begin(), found.end()), b(wanted.begin(), wanted.end());
  return close(what, a.data(), b.data(), a.size(), absolute, relative);
}

}  // namespace sf::golden
