// SPDX-License-Identifier: Apache-2.0
#include "engine/store.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/optimizer_kernels.h"
#include "tensor/convert.h"
#include "tensor/memory.h"

namespace sf::engine {
namespace {

constexpr int64_t kReadPiece = int64_t{1} << 20;  // elements: bounds the bounce buffer of a bf16 load

int64_t aligned_elements(int64_t elements) {
  return static_cast<int64_t>(plan::aligned_bytes(elements, Dtype::kF32) / sizeof(float));
}

std::span<float> floats(const at::Tensor& flat, int64_t at, int64_t count) {
  return {flat.mutable_data_ptr<float>() + at, static_cast<size_t>(count)};
}

at::Tensor flat(uint64_t bytes, at::ScalarType type) {
  return tensor::zeros(static_cast<int64_t>(bytes / c10::elementSize(type)), type);
}

std::byte* bytes_of(const at::Tensor& memory) {
  return static_cast<std::byte*>(memory.mutable_data_ptr());
}

}  // namespace

Store::Store(const plan::Schedule& plan, const arch::ModelSpec& spec, const std::vector<model::Segment>& segments,
             int rank)
    : plan_(plan), segments_(segments), rank_(rank), loaded_(plan.parameters.size(), false) {
  for (size_t p = 0; p < plan.parameters.size(); ++p) names_.emplace(plan.parameters[p].name, p);
  for (const arch::Alias& alias : spec.aliases) names_.emplace(alias.name, names_.at(alias.of));
  place_parameters();
  place_accumulators();
  const plan::Memory& memory = plan.memory[static_cast<size_t>(rank)];
  masters_ = flat(memory.masters, at::kFloat);
  exp_avg_ = flat(memory.moments / 2, at::kFloat);
  exp_avg_sq_ = flat(memory.moments / 2, at::kFloat);
  accumulators_ = flat(memory.accumulators, at::kFloat);
  sums_ = flat(memory.sums, at::kFloat);
  frozen_ = flat(memory.frozen, at::kByte);
  arena_ = flat(memory.slots, at::kByte);
  make_leaves(segments);
  gathers_.resize(plan.groups.size());
  for (size_t g = 0; g < plan.groups.size(); ++g) prepare_gather(g);
  prepare_spread();
}

const plan::Interval& Store::held(size_t parameter) const {
  return plan_.parameters[parameter].intervals[static_cast<size_t>(rank_)];
}

const plan::Interval& Store::owned(size_t parameter) const {
  return plan_.parameters[parameter].owned[static_cast<size_t>(rank_)];
}

void Store::place_parameters() {
  int64_t masters = 0, moments = 0, frozen = 0;
  for (size_t p = 0; p < plan_.parameters.size(); ++p) {
    const plan::Held& parameter = plan_.parameters[p];
    offset_.push_back(parameter.trainable ? masters : frozen);
    moments_at_.push_back(moments);
    if (parameter.trainable) {
      masters += aligned_elements(held(p).size());
      moments += aligned_elements(owned(p).size());
    } else {
      frozen += static_cast<int64_t>(plan::aligned_bytes(held(p).size(), parameter.compute));
    }
  }
}

void Store::place_accumulators() {
  int64_t end = 0;
  auto rank = static_cast<size_t>(rank_);
  for (const plan::Group& group : plan_.groups) {
    accumulators_at_.push_back(end);
    if (group.fold_offsets.empty()) continue;
    end += aligned_elements(static_cast<int64_t>(group.fold_offsets[rank + 1] - group.fold_offsets[rank]));
  }
}

void Store::make_leaves(const std::vector<model::Segment>& segments) {
  c10::AutoGradMode no_grad(false);
  for (size_t g = 0; g < plan_.groups.size(); ++g) {
    std::map<size_t, at::Tensor> leaf;
    Leaves& leaves = leaves_.emplace_back();
    trainable_parameters_.emplace_back();
    for (const plan::Member& member : plan_.groups[g].members) {
      leaf[member.parameter] = leaf_of(g, member);
      if (!plan_.parameters[member.parameter].trainable) continue;
      leaves.trainable.push_back(leaf[member.parameter]);
      trainable_parameters_[g].push_back(member.parameter);
    }
    for (const std::string& name : segments[g].parameters) {
      auto found = leaf.find(index_of(name));
      if (found != leaf.end()) leaves.by_name[name] = found->second;
    }
  }
}

// Its own TensorImpl and version counter on shared memory: refilling a slot does not disturb what autograd saved.
at::Tensor Store::leaf_of(size_t group, const plan::Member& member) const {
  const plan::Held& held = plan_.parameters[member.parameter];
  const at::Tensor& memory = !member.resident ? arena_ : held.trainable ? masters_ : frozen_;
  auto size = static_cast<int64_t>(size_of(held.compute));
  int64_t at = offset_[member.parameter];
  if (!member.resident) at = static_cast<int64_t>(plan_.groups[group].slot_begin + member.slot_offset) / size;
  if (member.resident && !held.trainable) at /= size;
  std::vector<int64_t> strides(held.shape.size());
  int64_t stride = 1;
  for (size_t d = held.shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(held.shape[d], 1);
  }
  at::Tensor leaf = at::empty({0}, at::TensorOptions().dtype(tensor::to_scalar(held.compute)));
  leaf.set_(memory.storage(), at, held.shape, strides);
  leaf.set_requires_grad(held.trainable);
  return leaf;
}

void Store::lend(size_t parameter, const at::Tensor& whole) {
  lent_.push_back(whole);
  for (size_t g = 0; g < segments_.size(); ++g) {
    if (segments_[g].table) continue;  // an exchange stands in for it
    for (const std::string& name : segments_[g].parameters) {
      if (index_of(name) != parameter) continue;
      SF_CHECK(whole.scalar_type() == tensor::to_scalar(plan_.options.compute), Exit::kConfig,
               "parameter {} lives on the host as {}, and segment {} computes in {}: choose that type, or another "
               "residency",
               plan_.parameters[parameter].name, name_of(plan_.parameters[parameter].compute), segments_[g].name,
               name_of(plan_.options.compute));
      leaves_[g].by_name[name] = whole;
    }
  }
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

std::span<float> Store::owned_master(size_t parameter) const {
  if (!plan_.parameters[parameter].trainable) return {};
  return floats(masters_, offset_[parameter] + owned(parameter).lo - held(parameter).lo, owned(parameter).size());
}

std::span<float> Store::exp_avg(size_t parameter) const {
  if (!plan_.parameters[parameter].trainable) return {};
  return floats(exp_avg_, moments_at_[parameter], owned(parameter).size());
}

std::span<float> Store::exp_avg_sq(size_t parameter) const {
  if (!plan_.parameters[parameter].trainable) return {};
  return floats(exp_avg_sq_, moments_at_[parameter], owned(parameter).size());
}

std::span<float> Store::accumulators(size_t group) const {
  const std::vector<size_t>& offsets = plan_.groups[group].fold_offsets;
  if (offsets.empty()) return {};
  auto rank = static_cast<size_t>(rank_);
  return floats(accumulators_, accumulators_at_[group], static_cast<int64_t>(offsets[rank + 1] - offsets[rank]));
}

std::span<float> Store::accumulator(size_t group, size_t parameter) const {
  size_t at = 0;
  for (size_t p : trainable_parameters_[group]) {
    auto size = static_cast<size_t>(owned(p).size());
    if (p == parameter) return accumulators(group).subspan(at, size);
    at += size;
  }
  return {};
}

void Store::zero_accumulators() {
  std::memset(accumulators_.mutable_data_ptr<float>(), 0, accumulators_.nbytes());
}

std::span<float> Store::sum(size_t group) const {
  const plan::Group& summed = plan_.groups[group];
  if (summed.fold_offsets.empty()) return {};
  if (plan_.options.world == 1) return accumulators(group);
  SF_ASSERT(plan_.options.local);
  return {reinterpret_cast<float*>(bytes_of(sums_) + summed.sum_begin), summed.fold_offsets.back()};
}

void Store::zero_sums() {
  std::memset(sums_.mutable_data_ptr(), 0, sums_.nbytes());
}

void Store::poison(uint64_t begin, uint64_t end) const {
  std::memset(bytes_of(arena_) + begin, 0xff, end - begin);  // a NaN in fp32 and in bf16
}

std::span<std::byte> Store::frozen_bytes(size_t parameter) const {
  return {bytes_of(frozen_) + offset_[parameter],
          static_cast<size_t>(held(parameter).size()) * size_of(plan_.parameters[parameter].compute)};
}

void Store::load(size_t parameter, const ReadInterval& read) {
  plan::Interval mine = held(parameter);
  loaded_[parameter] = true;
  if (mine.empty()) return;
  if (plan_.parameters[parameter].trainable) return read(mine.lo, mine.hi, master(parameter));
  std::span<std::byte> bytes = frozen_bytes(parameter);
  if (plan_.parameters[parameter].compute == Dtype::kF32) {
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
  if (plan_.parameters[parameter].compute == Dtype::kF32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    ops::from_bf16({reinterpret_cast<const uint16_t*>(bytes.data()), values.size()}, values);
  }
  return values;
}

void Store::prepare_gather(size_t g) {
  const plan::Group& group = plan_.groups[g];
  std::vector<int> row = plan_.mesh.row(rank_);
  Gather& gather = gathers_[g];
  auto add = [&](const plan::Member& member) {
    const plan::Held& parameter = plan_.parameters[member.parameter];
    size_t element = size_of(parameter.compute);
    Fill fill{member.parameter, {}, {}, {}, parameter.stored() != parameter.compute};
    for (int r : row)
      fill.sizes.push_back(static_cast<size_t>(parameter.intervals[static_cast<size_t>(r)].size()) * element);
    fill.into = {bytes_of(arena_) + group.slot_begin + member.slot_offset,
                 static_cast<size_t>(numel(parameter.shape)) * element};
    plan::Interval mine = held(member.parameter);
    if (!mine.empty())
      fill.place =
          fill.into.subspan(static_cast<size_t>(mine.lo) * element, static_cast<size_t>(mine.size()) * element);
    gather.fills.push_back(std::move(fill));
  };
  for (bool trainable : {false, true}) {
    for (const plan::Member& member : group.members) {
      if (!member.resident && plan_.parameters[member.parameter].trainable == trainable) add(member);
    }
    if (!trainable) gather.frozen = gather.fills.size();
  }
  for (const Fill& fill : gather.fills) {
    std::span<const std::byte> from = fill.place;
    if (!plan_.parameters[fill.parameter].trainable) {
      from = frozen_bytes(fill.parameter);
    } else if (!fill.converted) {
      from = std::as_bytes(master(fill.parameter));
    }
    gather.parts.push_back({from, fill.sizes, fill.into});
  }
}

void Store::prepare_spread() {
  if (plan_.mesh.replicas == 1) return;
  std::vector<size_t> trainable;
  for (size_t p = 0; p < plan_.parameters.size(); ++p) {
    if (plan_.parameters[p].trainable) trainable.push_back(p);
  }
  for (size_t p : trainable) {
    spread_sizes_.emplace_back();
    for (int r : plan_.mesh.column(rank_)) {
      const plan::Interval& part = plan_.parameters[p].owned[static_cast<size_t>(r)];
      spread_sizes_.back().push_back(static_cast<size_t>(part.size()) * sizeof(float));
    }
  }
  for (size_t i = 0; i < trainable.size(); ++i) {
    spread_.push_back(
        {std::as_bytes(owned_master(trainable[i])), spread_sizes_[i], std::as_writable_bytes(master(trainable[i]))});
  }
}

void Store::gather(size_t g, bool trainable_only, comm::Group& row, const comm::Call& call) const {
  const Gather& gather = gathers_[g];
  for (const Fill& fill : gather.fills) {
    if (!fill.converted) continue;
    ops::to_bf16(master(fill.parameter),
                 {reinterpret_cast<uint16_t*>(fill.place.data()), fill.place.size() / sizeof(uint16_t)});
  }
  if (plan_.mesh.shards == 1) return;  // what has a slot was converted into it
  row.all_gather(std::span(gather.parts).subspan(trainable_only ? gather.frozen : 0), call);
}

void Store::spread(comm::Group& column, const comm::Call& call) const {
  if (!spread_.empty()) column.all_gather(spread_, call);
}

int64_t Store::handles() const {
  int64_t count = 0;
  for (const at::Tensor* memory : {&arena_, &masters_, &frozen_})
    count += static_cast<int64_t>(memory->storage().use_count());
  return count;
}

namespace {

bool lies_in(const at::Tensor& memory, const at::Tensor& tensor) {
  const auto* at = static_cast<const std::byte*>(tensor.storage().data());
  const auto* begin = static_cast<const std::byte*>(memory.const_data_ptr());
  return at != nullptr && at >= begin && at < begin + memory.nbytes();
}

}  // namespace

bool Store::owns(const at::Tensor& tensor) const {
  return lies_in(arena_, tensor) || lies_in(masters_, tensor) || is_fixed(tensor);
}

bool Store::is_fixed(const at::Tensor& tensor) const {
  auto holds = [&](const at::Tensor& lent) { return lies_in(lent, tensor); };
  return lies_in(frozen_, tensor) || std::any_of(lent_.begin(), lent_.end(), holds);
}

}  // namespace sf::engine
