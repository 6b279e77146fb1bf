// SPDX-License-Identifier: Apache-2.0
#include "tool/names.h"

#include <fmt/format.h>

#include <algorithm>

namespace sf::tool {
namespace {

bool is_ignored(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.starts_with("mtp.");
}

void check_one(const ckpt::Checkpoint& checkpoint, const std::string& name, const Shape& shape, NameCheck& check) {
  if (!checkpoint.contains(name)) return check.missing.push_back(name);
  Shape found = checkpoint.info(name).shape;
  if (found != shape)
    check.misshapen.push_back(fmt::format("{} is {}, wanted {}", name, to_string(found), to_string(shape)));
}

}  // namespace

NameCheck check_names(const ckpt::Checkpoint& checkpoint, const arch::ModelSpec& spec) {
  NameCheck check;
  for (const arch::Parameter& p : spec.parameters) check_one(checkpoint, p.name, p.shape, check);
  for (const arch::Buffer& b : spec.buffers)
    if (b.stored) check_one(checkpoint, b.name, b.shape, check);
  for (const std::string& name : checkpoint.names()) {
    bool is_buffer = std::any_of(spec.buffers.begin(), spec.buffers.end(),
                                 [&](const auto& b) { return b.stored && b.name == name; });
    if (!spec.find(name) && !is_buffer && !is_ignored(name) && spec.storage_of(name) == name)
      check.unexpected.push_back(name);
  }
  return check;
}

}  // namespace sf::tool
