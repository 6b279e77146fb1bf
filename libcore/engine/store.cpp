// SPDX-License-Identifier: Apache-2.0
#include "engine/store.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/optimizer_kernels.h"
#include "tensor/convert.h"

namespace sf::engine {
namespace {

constexpr int64_t kReadPiece = int64_t{1} << 20;  // elements: bounds the bounce buffer of a bf16 load

int64_t aligned_elements(int64_t elements, Dtype type) {
  return static_cast<int64_t>(plan::aligned_bytes(elements, type) / size_of(type));
}

std::span<float> floats(const at::Tensor& flat, int64_t at, int64_t count) {
  return {flat.mutable_data_ptr<float>() + at, static_cast<size_t>(count)};
}

at::Tensor flat(uint64_t elements, at::ScalarType type) {
  return at::zeros({static_cast<int64_t>(elements)}, at::TensorOptions().dtype(type));
}

}  // namespace

Store::Store(const plan::Schedule& plan, const arch::ModelSpec& spec, const std::vector<model::Segment>& segments,
             comm::Group& group)
    : plan_(plan), group_(group), loaded_(plan.parameters.size(), false) {
  for (size_t p = 0; p < plan.parameters.size(); ++p) names_.emplace(plan.parameters[p].name, p);
  for (const arch::Alias& alias : spec.aliases) names_.emplace(alias.name, names_.at(alias.of));
  place_parameters();
  place_accumulators();
  const plan::Memory& memory = plan.memory[static_cast<size_t>(group.rank())];
  size_t compute = size_of(plan.options.compute);
  at::ScalarType type = tensor::to_scalar(plan.options.compute);
  masters_ = flat(memory.masters / sizeof(float), at::kFloat);
  exp_avg_ = flat(memory.moments / 2 / sizeof(float), at::kFloat);
  exp_avg_sq_ = flat(memory.moments / 2 / sizeof(float), at::kFloat);
  accumulators_ = flat(memory.accumulators / sizeof(float), at::kFloat);
  reduce_ = flat(memory.reduce / sizeof(float), at::kFloat);
  frozen_ = flat(memory.frozen / compute, type);
  arena_ = flat(memory.slots / compute, type);
  make_leaves(segments);
}

const plan::Interval& Store::held(size_t parameter) const {
  return plan_.parameters[parameter].intervals[static_cast<size_t>(group_.rank())];
}

void Store::place_parameters() {
  int64_t masters = 0, frozen = 0;
  for (size_t p = 0; p < plan_.parameters.size(); ++p) {
    bool trainable = plan_.parameters[p].trainable;
    int64_t& end = trainable ? masters : frozen;
    offset_.push_back(end);
    end += aligned_elements(held(p).size(), trainable ? Dtype::kF32 : plan_.options.compute);
  }
}

void Store::place_accumulators() {
  int64_t end = 0;
  auto rank = static_cast<size_t>(group_.rank());
  for (const plan::Group& group : plan_.groups) {
    accumulators_at_.push_back(end);
    if (group.fold_offsets.empty()) continue;
    end += aligned_elements(static_cast<int64_t>(group.fold_offsets[rank + 1] - group.fold_offsets[rank]), Dtype::kF32);
  }
}

void Store::make_leaves(const std::vector<model::Segment>& segments) {
  c10::AutoGradMode no_grad(false);
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    std::map<size_t, at::Tensor> leaf;
    trainable_.emplace_back();
    trainable_parameters_.emplace_back();
    for (const plan::Member& member : plan_.groups[g].members) {
      leaf[member.parameter] = leaf_of(g, member);
      if (!plan_.parameters[member.parameter].trainable) continue;
      trainable_[g].push_back(leaf[member.parameter]);
      trainable_parameters_[g].push_back(member.parameter);
    }
    by_name_.emplace_back();
    for (const std::string& name : segments[g].parameters) by_name_[g][name] = leaf.at(index_of(name));
  }
}

// Its own TensorImpl and version counter on shared memory: refilling a slot does not disturb what autograd saved.
at::Tensor Store::leaf_of(size_t group, const plan::Member& member) const {
  const plan::Held& held = plan_.parameters[member.parameter];
  const at::Tensor& memory = !member.resident ? arena_ : held.trainable ? masters_ : frozen_;
  uint64_t slot = (plan_.groups[group].slot_begin + member.slot_offset) / size_of(plan_.options.compute);
  int64_t at = member.resident ? offset_[member.parameter] : static_cast<int64_t>(slot);
  std::vector<int64_t> strides(held.shape.size());
  int64_t stride = 1;
  for (size_t d = held.shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(held.shape[d], 1);
  }
  at::Tensor leaf = at::empty({0}, memory.options());
  leaf.set_(memory.storage(), at, held.shape, strides);
  leaf.set_requires_grad(held.trainable);
  return leaf;
}

size_t Store::index_of(std::string_view name) const {
  auto found = names_.find(name);
  SF_CHECK(found != names_.end(), Exit::kSoftware, "no parameter {}", name);
  return found->second;
}

std::span<float> Store::master(size_t parameter) const {
  if (!plan_.parameters[parameter].trainable) return {};
  return floats(masters_, offset_[parameter], held(parameter).size());
}

std::span<float> Store::exp_avg(size_t parameter) const {
  if (!plan_.parameters[parameter].trainable) return {};
  return floats(exp_avg_, offset_[parameter], held(parameter).size());
}

std::span<float> Store::exp_avg_sq(size_t parameter) const {
  if (!plan_.parameters[parameter].trainable) return {};
  return floats(exp_avg_sq_, offset_[parameter], held(parameter).size());
}

std::span<float> Store::accumulators(size_t group) const {
  const std::vector<size_t>& offsets = plan_.groups[group].fold_offsets;
  if (offsets.empty()) return {};
  auto rank = static_cast<size_t>(group_.rank());
  return floats(accumulators_, accumulators_at_[group], static_cast<int64_t>(offsets[rank + 1] - offsets[rank]));
}

std::span<float> Store::accumulator(size_t group, size_t parameter) const {
  size_t at = 0;
  for (size_t p : trainable_parameters_[group]) {
    auto size = static_cast<size_t>(held(p).size());
    if (p == parameter) return accumulators(group).subspan(at, size);
    at += size;
  }
  return {};
}

void Store::zero_accumulators() {
  std::memset(accumulators_.mutable_data_ptr<float>(), 0, accumulators_.nbytes());
}

std::span<std::byte> Store::frozen_bytes(size_t parameter) const {
  size_t size = size_of(plan_.options.compute);
  return {static_cast<std::byte*>(frozen_.mutable_data_ptr()) + static_cast<size_t>(offset_[parameter]) * size,
          static_cast<size_t>(held(parameter).size()) * size};
}

void Store::load(size_t parameter, const ReadInterval& read) {
  plan::Interval mine = held(parameter);
  loaded_[parameter] = true;
  if (mine.empty()) return;
  if (plan_.parameters[parameter].trainable) return read(mine.lo, mine.hi, master(parameter));
  std::span<std::byte> bytes = frozen_bytes(parameter);
  if (plan_.options.compute == Dtype::kF32) {
    return read(mine.lo, mine.hi, {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)});
  }
  std::span<uint16_t> to(reinterpret_cast<uint16_t*>(bytes.data()), bytes.size() / sizeof(uint16_t));
  std::vector<float> piece(static_cast<size_t>(std::min(mine.size(), kReadPiece)));
  for (int64_t lo = mine.lo; lo < mine.hi; lo += kReadPiece) {
    auto count = static_cast<size_t>(std::min(kReadPiece, mine.hi - lo));
    std::span<float> part = std::span(piece).first(count);
    read(lo, lo + static_cast<int64_t>(count), part);
    ops::to_bf16(part, to.subspan(static_cast<size_t>(lo - mine.lo), count));
  }
}

std::vector<float> Store::read_frozen(size_t parameter) const {
  std::span<std::byte> bytes = frozen_bytes(parameter);
  std::vector<float> values(static_cast<size_t>(held(parameter).size()));
  if (values.empty()) return values;
  if (plan_.options.compute == Dtype::kF32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    ops::from_bf16({reinterpret_cast<const uint16_t*>(bytes.data()), values.size()}, values);
  }
  return values;
}

void Store::gather(size_t g, const comm::Call& call) {
  const plan::Group& group = plan_.groups[g];
  auto world = static_cast<size_t>(group_.world());
  size_t element = size_of(plan_.options.compute);
  std::vector<std::vector<size_t>> sizes;
  std::vector<comm::GatherPart> parts;
  sizes.reserve(group.members.size());
  for (const plan::Member& member : group.members) {
    if (member.resident) continue;
    const plan::Held& parameter = plan_.parameters[member.parameter];
    sizes.emplace_back(world);
    for (size_t r = 0; r < world; ++r) sizes.back()[r] = static_cast<size_t>(parameter.intervals[r].size()) * element;
    auto* begin = static_cast<std::byte*>(arena_.mutable_data_ptr()) + group.slot_begin + member.slot_offset;
    std::span<std::byte> into(begin, static_cast<size_t>(numel(parameter.shape)) * element);
    plan::Interval mine = held(member.parameter);
    std::span<std::byte> place = mine.empty() ? std::span<std::byte>{}
                                              : into.subspan(static_cast<size_t>(mine.lo) * element,
                                                             sizes.back()[static_cast<size_t>(group_.rank())]);
    std::span<const std::byte> from = place;
    if (!parameter.trainable) {
      from = frozen_bytes(member.parameter);
    } else if (plan_.options.compute == Dtype::kF32) {
      from = std::as_bytes(master(member.parameter));
    } else {
      ops::to_bf16(master(member.parameter), {reinterpret_cast<uint16_t*>(place.data()), place.size() / element});
    }
    parts.push_back({from, sizes.back(), into});
  }
  group_.all_gather(parts, call);
}

bool Store::owns(const at::Tensor& tensor) const {
  const auto* at = static_cast<const std::byte*>(tensor.storage().data());
  auto inside = [&](const at::Tensor& memory) {
    const auto* begin = static_cast<const std::byte*>(memory.const_data_ptr());
    return at >= begin && at < begin + memory.nbytes();
  };
  return at != nullptr && (inside(arena_) || inside(masters_) || inside(frozen_));
}

std::span<float> Store::reduce_buffer() const {
  return {reduce_.mutable_data_ptr<float>(), static_cast<size_t>(reduce_.numel())};
}

uint64_t Store::allocated_bytes() const {
  uint64_t bytes = 0;
  for (const at::Tensor* memory : {&masters_, &exp_avg_, &exp_avg_sq_, &accumulators_, &reduce_, &frozen_, &arena_}) {
    bytes += memory->nbytes();
  }
  return bytes;
}

}  // namespace sf::engine
