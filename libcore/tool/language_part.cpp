// SPDX-License-Identifier: Apache-2.0
#include "tool/language_part.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace sf::tool {
namespace {

constexpr std::string_view kWrapped = "model.language_model.";
constexpr std::string_view kAside[] = {"model.visual.", "visual.", "mtp."};

bool is_aside(std::string_view name) {
  return std::any_of(std::begin(kAside), std::end(kAside), [&](auto prefix) { return name.starts_with(prefix); });
}

}  // namespace

std::vector<std::string> take_language_part(TensorSet& set) {
  std::vector<std::string> aside;
  for (const StoredTensor& tensor : set.tensors)
    if (is_aside(tensor.name)) aside.push_back(tensor.name);
  std::erase_if(set.tensors, [](const StoredTensor& tensor) { return is_aside(tensor.name); });
  for (StoredTensor& tensor : set.tensors)
    if (tensor.name.starts_with(kWrapped)) tensor.name = "model." + tensor.name.substr(kWrapped.size());
  std::sort(set.tensors.begin(), set.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (size_t i = 1; i < set.tensors.size(); ++i)
    SF_CHECK(set.tensors[i].name != set.tensors[i - 1].name, Exit::kData, "{}: \"{}\" is there twice, once as \"{}{}\"",
             set.path.string(), set.tensors[i].name, kWrapped, set.tensors[i].name.substr(6));
  return aside;
}

}  // namespace sf::tool
