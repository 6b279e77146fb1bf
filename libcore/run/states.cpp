// SPDX-License-Identifier: Apache-2.0
#include "run/states.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <set>

#include "arch/states.h"
#include "base/error.h"
#include "base/fault.h"
#include "tensor/convert.h"

namespace sf::run {
namespace {

using Rows = std::span<const text::ChatRow* const>;
using Layers = std::span<const int64_t>;

std::string name_of(const text::ChatRow& row) {
  return fmt::format("row {} (id {})", row.row, row.id);
}

class WholeTarget : public StatesOf {
 public:
  WholeTarget(gen::Target& target, gen::Seen seen, Given given = {})
      : target_(target), seen_(std::move(seen)), given_(std::move(given)) {}

  const arch::Decoder& decoder() const override { return target_.decoder(); }
  Dtype compute() const override { return target_.compute(); }
  at::Tensor logits(const at::Tensor& final_norm) const override { return target_.logits(final_norm); }

  std::vector<Computed> of(Rows rows, Layers layers) override {
    std::vector<Computed> all;
    for (const text::ChatRow* row : rows) all.push_back(judged(given_ ? given_(*row) : prefilled(*row, layers), *row));
    return all;
  }

  std::vector<Computed> plainly(Rows rows, Layers layers) override {
    std::vector<Computed> all;
    for (const text::ChatRow* row : rows) {
      gen::Cache cache = target_.make_cache(std::ssize(row->encoded.ids));
      const gen::Part part{&cache, row->encoded.ids};
      all.push_back(judged(target_.forward(std::span(&part, 1), layers), *row));
    }
    return all;
  }

 private:
  gen::States prefilled(const text::ChatRow& row, Layers layers) {
    gen::Cache cache = target_.make_cache(std::ssize(row.encoded.ids));
    return target_.prefill(cache, row.encoded.ids, layers);
  }

  Computed judged(gen::States states, const text::ChatRow& row) const {
    Computed one{std::move(states), {}};
    if (!seen_) return one;
    try {
      one.teacher = target_.top1(seen_(one.states.final_norm));
    } catch (Error& error) {
      error.add_context(name_of(row));
      throw;
    }
    return one;
  }

  gen::Target& target_;
  gen::Seen seen_;
  Given given_;
};

// The rows' ids and lengths as segments read them.
model::Tensors inputs_of(Rows rows) {
  int64_t count = 0;
  for (const text::ChatRow* row : rows) count += std::ssize(row->encoded.ids);
  at::Tensor ids = at::empty({count}, at::kLong), lengths = at::empty({std::ssize(rows)}, at::kLong);
  int64_t* to = ids.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < rows.size(); ++i) {
    lengths.mutable_data_ptr<int64_t>()[i] = std::ssize(rows[i]->encoded.ids);
    to = std::ranges::copy(rows[i]->encoded.ids, to).out;
  }
  return {{"ids", ids}, {"lengths", lengths}};
}

std::string name_of_state(int64_t layer) {
  return fmt::format("hidden.{}", layer);
}

// Each row's part of what segments wrote.
std::vector<Computed> parts_of(Rows rows, Layers layers, const model::Tensors& all, bool teacher) {
  std::vector<Computed> parts;
  int64_t begin = 0;
  for (const text::ChatRow* row : rows) {
    const int64_t length = std::ssize(row->encoded.ids);
    auto part = [&](const std::string& name) { return all.at(name).narrow(0, begin, length); };
    Computed& one = parts.emplace_back();
    for (int64_t layer : layers) one.states.captured.push_back(part(name_of_state(layer)));
    one.states.final_norm = part("final_norm");
    if (teacher) one.teacher = {part("target_top1"), part("target_lse"), {}};
    begin += length;
  }
  return parts;
}

class SharedByRanks : public SharedStates {
 public:
  SharedByRanks(comm::Group& group, SharedTarget target, engine::EngineOptions options)
      : target_(std::move(target)),
        spec_(arch::describe_states(target_.decoder, static_cast<bool>(target_.seen))),
        plain_(gen::states_segments(target_.decoder, target_.compute, target_.seen, 0)),
        engine_(group, spec_, gen::states_segments(target_.decoder, target_.compute, target_.seen),
                std::move(options)) {
    for (const arch::Parameter& parameter : spec_.parameters)
      engine_.load(parameter.name,
                   [&](int64_t lo, int64_t hi, std::span<float> to) { target_.read(parameter.name, lo, hi, to); });
  }

  const arch::Decoder& decoder() const override { return target_.decoder; }
  Dtype compute() const override { return target_.compute; }
  bool shared() const override { return true; }
  at::Tensor logits(const at::Tensor&) const override { return {}; }
  engine::Engine& engine() override { return engine_; }

  std::vector<Computed> of(Rows rows, Layers layers) override {
    std::set<std::string> keep{"final_norm"};
    for (int64_t layer : layers) keep.insert(name_of_state(layer));
    if (target_.seen) keep.insert({"target_top1", "target_lse"});
    std::optional<model::Tensors> inputs;
    if (!rows.empty()) inputs = inputs_of(rows);
    try {
      const model::Tensors all = engine_.forward(inputs, {keep.begin(), keep.end()});
      return parts_of(rows, layers, all, static_cast<bool>(target_.seen));
    } catch (Error& error) {
      if (!rows.empty() && error.code() == Exit::kData)
        error.add_context(rows.size() == 1 ? name_of(*rows[0])
                                           : fmt::format("{} to {}", name_of(*rows.front()), name_of(*rows.back())));
      throw;
    }
  }

  // Segment by segment of whole parameters as they are read: at no time more than one segment's.
  std::vector<Computed> plainly(Rows rows, Layers layers) override {
    if (rows.empty()) return {};
    model::Tensors boundaries = inputs_of(rows);
    for (const model::Segment& segment : plain_) {
      model::Tensors parameters;
      for (const std::string& name : segment.parameters) parameters[name] = whole(name);
      for (auto& [name, value] : segment.forward(parameters, boundaries)) boundaries[name] = value;
    }
    return parts_of(rows, layers, boundaries, static_cast<bool>(target_.seen));
  }

 private:
  at::Tensor whole(const std::string& name) const {
    const std::string storage(spec_.storage_of(name));
    const Shape& shape = spec_.find(storage)->shape;
    at::Tensor values = at::empty(shape, at::kFloat);
    target_.read(storage, 0, numel(shape), {values.mutable_data_ptr<float>(), static_cast<size_t>(values.numel())});
    return values.to(tensor::to_scalar(target_.compute));
  }

  const SharedTarget target_;
  const arch::ModelSpec spec_;
  const std::vector<model::Segment> plain_;
  engine::Engine engine_;
};

}  // namespace

std::unique_ptr<StatesOf> whole_target(gen::Target& target, gen::Seen seen) {
  return std::make_unique<WholeTarget>(target, std::move(seen));
}

std::unique_ptr<StatesOf> given_states(gen::Target& target, gen::Seen seen, Given given) {
  return std::make_unique<WholeTarget>(target, std::move(seen), std::move(given));
}

std::unique_ptr<SharedStates> shared_target(comm::Group& group, SharedTarget target, engine::EngineOptions options) {
  return std::make_unique<SharedByRanks>(group, std::move(target), std::move(options));
}

}  // namespace sf::run
