// SPDX-License-Identifier: Apache-2.0
#include "tool/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

namespace sf::tool {
namespace {

bool is_ignored(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.starts_with("mtp.");
}

using ShapeOf = std::function<std::optional<Shape>(const std::string& name)>;

void check_one(const ShapeOf& shape_of, const std::string& name, const Shape& shape, NameCheck& check) {
  std::optional<Shape> found = shape_of(name);
  if (!found) return check.missing.push_back(name);
  if (*found != shape)
    check.misshapen.push_back(fmt::format("{} is {}, wanted {}", name, to_string(*found), to_string(shape)));
}

NameCheck check_names(const ShapeOf& shape_of, const std::vector<std::string>& stored, const arch::ModelSpec& spec) {
  NameCheck check;
  for (const arch::Parameter& p : spec.parameters) check_one(shape_of, p.name, p.shape, check);
  for (const arch::Buffer& b : spec.buffers)
    if (b.stored) check_one(shape_of, b.name, b.shape, check);
  for (const std::string& name : stored) {
    bool is_buffer = std::any_of(spec.buffers.begin(), spec.buffers.end(),
                                 [&](const auto& b) { return b.stored && b.name == name; });
    if (!spec.find(name) && !is_buffer && !is_ignored(name) && spec.storage_of(name) == name)
      check.unexpected.push_back(name);
  }
  return check;
}

}  // namespace

NameCheck check_names(const ckpt::Checkpoint& checkpoint, const arch::ModelSpec& spec) {
  auto shape_of = [&](const std::string& name) {
    return checkpoint.contains(name) ? std::optional(checkpoint.info(name).shape) : std::nullopt;
  };
  return check_names(shape_of, checkpoint.names(), spec);
}

NameCheck check_names(const TensorSet& set, const arch::ModelSpec& spec) {
  std::vector<std::string> stored;
  for (const StoredTensor& tensor : set.tensors) stored.push_back(tensor.name);
  auto shape_of = [&](const std::string& name) {
    const StoredTensor* tensor = set.find(name);
    return tensor ? std::optional(tensor->shape) : std::nullopt;
  };
  return check_names(shape_of, stored, spec);
}

}  // namespace sf::tool
