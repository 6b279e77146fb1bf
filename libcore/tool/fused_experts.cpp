// SPDX-License-Identifier: Apache-2.0
#include "tool/fused_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace sf::tool {
namespace {

constexpr std::string_view kGateUp = ".experts.gate_up_proj", kDown = ".experts.down_proj";

// The names of a fused parameter's parts in the order of their bytes, and their shape.
struct Parts {
  std::vector<std::string> names;
  Shape shape;
};

Parts parts_of(const std::string& name, const Shape& shape) {
  bool both = name.ends_with(kGateUp);
  std::string at = name.substr(0, name.rfind('.') + 1);
  Parts parts{{}, {both ? shape[1] / 2 : shape[1], shape[2]}};
  for (int64_t e = 0; e < shape[0]; ++e)
    for (std::string_view part :
         both ? std::vector<std::string_view>{"gate", "up"} : std::vector<std::string_view>{"down"})
      parts.names.push_back(fmt::format("{}{}.{}_proj.weight", at, e, part));
  return parts;
}

bool names_experts(std::string_view name) {
  return name.ends_with(kGateUp) || name.ends_with(kDown);
}

// All parts one behind the other.
StoredTensor joined(const std::string& name, const Shape& shape, std::vector<StoredTensor> parts) {
  StoredTensor out = parts.front();
  out.name = name;
  out.shape = shape;
  out.bytes = parts.front().bytes * parts.size();
  out.read = [parts](uint64_t offset, std::span<std::byte> to) {
    const uint64_t each = parts.front().bytes;
    while (!to.empty()) {
      uint64_t inside = offset % each, size = std::min<uint64_t>(each - inside, to.size());
      parts[offset / each].read(inside, to.first(size));
      to = to.subspan(size);
      offset += size;
    }
  };
  out.all = [parts = std::move(parts)](const ckpt::TensorSource::Sink& sink) {
    for (const StoredTensor& part : parts) part.stream(sink);
  };
  return out;
}

}  // namespace

bool is_fused(const StoredTensor& tensor) {
  return tensor.shape.size() == 3 && names_experts(tensor.name);
}

void fuse_experts(TensorSet& set, const arch::ModelSpec& spec) {
  std::set<std::string> used;
  std::vector<StoredTensor> made;
  for (const arch::Parameter& parameter : spec.parameters) {
    if (parameter.shape.size() != 3 || !names_experts(parameter.name) || set.stored(parameter.name)) continue;
    Parts parts = parts_of(parameter.name, parameter.shape);
    std::vector<StoredTensor> found;
    for (const std::string& name : parts.names) {
      const StoredTensor* part = set.stored(name);
      if (part && part->shape == parts.shape && part->dtype && (found.empty() || part->dtype == found.front().dtype))
        found.push_back(*part);
    }
    if (found.size() != parts.names.size()) continue;
    made.push_back(joined(parameter.name, parameter.shape, std::move(found)));
    used.insert(parts.names.begin(), parts.names.end());
  }
  std::erase_if(set.tensors, [&](const StoredTensor& tensor) { return used.contains(tensor.name); });
  set.tensors.insert(set.tensors.end(), made.begin(), made.end());
  std::sort(set.tensors.begin(), set.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
}

std::vector<StoredTensor> split_experts(const StoredTensor& fused) {
  SF_ASSERT(is_fused(fused));
  Parts parts = parts_of(fused.name, fused.shape);
  std::vector<StoredTensor> out;
  const uint64_t each = fused.bytes / parts.names.size();
  for (const std::string& name : parts.names) {
    StoredTensor part = fused;
    part.name = name;
    part.shape = parts.shape;
    part.bytes = each;
    part.all = {};
    part.read = [read = fused.read, begin = each * out.size()](uint64_t offset, std::span<std::byte> to) {
      read(begin + offset, to);
    };
    out.push_back(std::move(part));
  }
  return out;
}

}  // namespace sf::tool
