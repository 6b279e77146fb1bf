// SPDX-License-Identifier: Apache-2.0
#include "model/segment.h"

#include <fmt/format.h>

#include "base/error.h"

namespace sf::model {

const at::Tensor& Tensors::at(std::string_view name) const {
  auto found = find(name);
  if (found != end()) return found->second;
  std::vector<std::string_view> names;
  for (const auto& [each, tensor] : *this) names.push_back(each);
  fail(Exit::kSoftware,
       "\"{}\" is read where it is not given: a segment is given what it declares, and a sharded parameter is gathered "
       "for no other; given are {}",
       name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

at::Tensor& Tensors::at(std::string_view name) {
  return const_cast<at::Tensor&>(std::as_const(*this).at(name));
}

}  // namespace sf::model
