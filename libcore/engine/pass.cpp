// SPDX-License-Identifier: Apache-2.0
#include "engine/pass.h"

#include <ATen/ops/add.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "base/error.h"
#include "base/fault.h"
#include "engine/exchange.h"
#include "tensor/device.h"

namespace sf::engine {

Pass::Pass(const plan::Schedule& plan, const std::vector<model::Segment>& segments, const EngineOptions& options,
           const Store& store, Places places, PassCalls calls)
    : plan_(plan),
      segments_(segments),
      options_(options),
      store_(store),
      copies_(places.copies),
      spill_(places.spill),
      calls_(std::move(calls)),
      saved_(segments.size()) {
  for (size_t s = 0; s < segments_.size(); ++s) {
    for (const std::string& name : segments_[s].reads) last_reader_[name] = s;
    written_.insert(segments_[s].writes.begin(), segments_[s].writes.end());
  }
  spill_.clear();
}

void Pass::forward(const std::optional<model::Tensors>& inputs, bool graph, const std::vector<std::string>& keep) {
  present_ = inputs.has_value();
  if (present_) boundaries_ = *inputs;
  wanted_.insert(keep.begin(), keep.end());
  auto count = static_cast<int64_t>(segments_.size());
  for (size_t s = 0; s < segments_.size(); ++s) {
    calls_.prepare(static_cast<int64_t>(s), graph ? 2 * count : count);
    bool differentiates = graph && plan_.groups[s].needs_graph;
    if (exchange_of(s)) {
      exchange_forward(s, differentiates);
    } else if (present_) {
      run_segment(s, differentiates);
    }
  }
  if (!present_) return;
  for (const std::string& name : keep) {
    auto found = boundaries_.find(name);
    SF_CHECK(found != boundaries_.end(), Exit::kSoftware, "no segment writes boundary {}", name);
    kept_[name] = tensor::on_host(found->second.detach());
  }
}

Exchange* Pass::exchange_of(size_t s) const {
  auto found = options_.exchanges.find(segments_[s].name);
  return found == options_.exchanges.end() ? nullptr : found->second.get();
}

model::Tensors Pass::inputs_of(size_t s) const {
  model::Tensors inputs;
  for (const std::string& name : segments_[s].reads) {
    auto found = boundaries_.find(name);
    SF_CHECK(found != boundaries_.end(), Exit::kSoftware,
             "segment {} reads boundary {}, which neither the micro-batch nor an earlier segment gives",
             segments_[s].name, name);
    inputs[name] = found->second;
  }
  return inputs;
}

// A boundary is a leaf of the graphs of those that read it.
void Pass::put(const std::string& name, const at::Tensor& value, bool graph) {
  at::Tensor boundary = value.detach();
  if (graph) boundary.set_requires_grad(true);
  boundaries_[name] = std::move(boundary);
}

void Pass::drop_read(size_t s) {
  for (const std::string& name : segments_[s].reads) {
    if (last_reader_.at(name) == s && !wanted_.contains(name)) boundaries_.erase(name);
  }
}

void Pass::run_segment(size_t s, bool graph) {
  const int64_t handles = store_.handles();
  model::Tensors inputs = inputs_of(s);
  std::optional<Leaves> copies = copies_.bring(s);
  model::Tensors outputs = call(s, inputs, used(s, copies), graph);
  for (const std::string& name : segments_[s].writes) {
    put(name, outputs.at(name), graph && outputs.at(name).requires_grad());
  }
  if (graph) save(s, std::move(inputs), std::move(outputs), std::move(copies));
  outputs.clear();
  if (saved_[s].outputs.empty())
    check_handles(s, handles);
  else
    saved_[s].handles = store_.handles() - handles;
  drop_read(s);
}

void Pass::save(size_t s, model::Tensors inputs, model::Tensors outputs, std::optional<Leaves> leaves) {
  Saved& saved = saved_[s];
  // Backward begins with the last segment: its graph is still fresh in any mode.
  if (plan_.groups[s].mode == Mode::kKeep || s + 1 == segments_.size()) {
    std::erase_if(inputs, [](const auto& input) { return !input.second.requires_grad(); });
    saved.outputs = std::move(outputs);
    saved.leaves = std::move(leaves);
  } else if (plan_.groups[s].mode == Mode::kOffload) {
    for (auto& [name, value] : inputs) {
      if (!written_.contains(name)) continue;  // of the micro-batch: its owner holds it anyway
      spill_.put(name, value.detach());
      saved.spilled[name] = value.requires_grad();
    }
    std::erase_if(inputs, [&](const auto& input) { return saved.spilled.contains(input.first); });
  }
  saved.inputs = std::move(inputs);
}

Pass::Saved Pass::take_saved(size_t s) {
  Saved saved = std::exchange(saved_[s], {});
  for (const auto& [name, differentiable] : saved.spilled) {
    saved.inputs[name] = spill_.get(name).set_requires_grad(differentiable);
  }
  return saved;
}

void Pass::exchange_forward(size_t s, bool graph) {
  model::Tensors inputs;
  if (present_) inputs = inputs_of(s);
  model::Tensors outputs = exchange_of(s)->forward(store_, present_ ? &inputs : nullptr, graph);
  if (!present_) return;
  for (const std::string& name : segments_[s].writes) {
    auto found = outputs.find(name);
    SF_CHECK(found != outputs.end() && found->second.defined(), Exit::kSoftware, "segment {} did not write boundary {}",
             segments_[s].name, name);
    put(name, found->second, graph && found->second.is_floating_point());
  }
  drop_read(s);
}

void Pass::exchange_backward(size_t s) {
  model::Tensors gradients;
  for (const std::string& name : segments_[s].writes) {
    auto found = gradients_.find(name);
    if (found == gradients_.end()) continue;
    gradients[name] = found->second;
    gradients_.erase(found);
  }
  for (const auto& [name, gradient] : exchange_of(s)->backward(store_, present_ ? &gradients : nullptr)) {
    if (gradient.defined()) add_gradient(name, gradient);
  }
}

void Pass::add_gradient(const std::string& name, const at::Tensor& gradient) {
  at::Tensor& sum = gradients_[name];
  sum = sum.defined() ? at::add(sum, gradient) : gradient;
}

// Mode recompute builds the graph and drops it, so that both modes run the same operators and give the same bits.
model::Tensors Pass::call(size_t s, const model::Tensors& inputs, const Leaves& leaves, bool graph) const {
  const model::Segment& segment = segments_[s];
  c10::AutoGradMode mode(graph);
  model::Tensors outputs;
  try {
    outputs = segment.forward(leaves.by_name, inputs);
  } catch (Error& error) {
    error.add_context(fmt::format("segment {}", segment.name));
    throw;
  }
  for (const std::string& name : segment.writes) {
    auto found = outputs.find(name);
    SF_CHECK(found != outputs.end() && found->second.defined(), Exit::kSoftware, "segment {} did not write boundary {}",
             segment.name, name);
    check_output(s, name, found->second);
  }
  return outputs;
}

void Pass::check_output(size_t s, const std::string& name, const at::Tensor& value) const {
  SF_CHECK(!store_.owns(value), Exit::kSoftware, "segment {}: boundary {} lies in the memory of a parameter",
           segments_[s].name, name);
}

// A tensor that a segment keeps would read whatever lies in its slot by then.
void Pass::check_handles(size_t s, int64_t wanted) const {
  SF_CHECK(store_.handles() == wanted || fault("engine.kept_handles"), Exit::kSoftware,
           "segment {} keeps {} handles on its parameters ({}) beyond its call, when what is read through them is no "
           "longer theirs",
           segments_[s].name, store_.handles() - wanted, fmt::join(segments_[s].parameters, ", "));
}

void Pass::seed(const std::string& loss) {
  auto found = boundaries_.find(loss);
  SF_CHECK(found != boundaries_.end(), Exit::kSoftware, "no segment writes boundary {}, the loss", loss);
  SF_CHECK(found->second.numel() == 1 && found->second.is_floating_point(), Exit::kSoftware,
           "boundary {}, the loss, is not a floating scalar", loss);
  gradients_[loss] = at::ones_like(found->second);
}

void Pass::backward(const std::string& loss) {
  if (present_) seed(loss);
  boundaries_.clear();
  auto end = 2 * static_cast<int64_t>(segments_.size());
  for (int64_t time = end / 2; time < end; ++time) {
    std::optional<plan::Use> use = plan::use_at(plan_, time);
    if (!use) continue;
    calls_.prepare(time, end);
    if (exchange_of(use->group)) {
      exchange_backward(use->group);
      continue;
    }
    std::optional<std::vector<at::Tensor>> gradients;
    if (present_) {
      const int64_t handles = store_.handles() - saved_[use->group].handles;
      gradients = differentiate(use->group);
      check_handles(use->group, handles);
    }
    if (!plan_.groups[use->group].fold_offsets.empty()) calls_.fold(use->group, std::move(gradients));
  }
}

std::vector<at::Tensor> Pass::differentiate(size_t s) {
  Saved saved = take_saved(s);
  bool reached = false;
  for (const std::string& name : segments_[s].writes) reached |= gradients_.contains(name);
  if (reached && saved.outputs.empty()) {
    saved.leaves = copies_.bring(s);
    saved.outputs = call(s, saved.inputs, used(s, saved.leaves), true);
  }
  const std::vector<at::Tensor>& leaves = used(s, saved.leaves).trainable;
  std::vector<at::Tensor> roots, seeds, inputs = leaves;
  std::vector<std::string> names;
  for (const auto& [name, value] : saved.inputs) {
    if (!value.requires_grad()) continue;
    inputs.push_back(value);
    names.push_back(name);
  }
  for (const std::string& name : segments_[s].writes) {
    auto gradient = gradients_.find(name);
    if (gradient == gradients_.end()) continue;
    if (saved.outputs.at(name).requires_grad()) {
      roots.push_back(saved.outputs.at(name));
      seeds.push_back(gradient->second);
    }
    gradients_.erase(gradient);
  }
  std::vector<at::Tensor> result(inputs.size());
  if (!roots.empty() && !inputs.empty()) result = torch::autograd::grad(roots, inputs, seeds, false, false, true);
  for (size_t i = 0; i < names.size(); ++i) {
    if (result[leaves.size() + i].defined()) add_gradient(names[i], result[leaves.size() + i]);
  }
  result.resize(leaves.size());
  for (at::Tensor& gradient : result)
    if (gradient.defined()) gradient = tensor::on_host(gradient);
  return result;
}

}  // namespace sf::engine
