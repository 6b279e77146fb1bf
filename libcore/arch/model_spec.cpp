// SPDX-License-Identifier: Apache-2.0
#include "arch/model_spec.h"

namespace sf::arch {

const Parameter* ModelSpec::find(std::string_view name) const {
  for (const Parameter& parameter : parameters)
    if (parameter.name == name) return &parameter;
  return nullptr;
}

std::string_view ModelSpec::storage_of(std::string_view name) const {
  for (const Alias& alias : aliases)
    if (alias.name == name) return alias.of;
  return name;
}

int64_t ModelSpec::parameter_count() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters) count += numel(parameter.shape);
  return count;
}

}  // namespace sf::arch
