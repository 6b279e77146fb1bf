// SPDX-License-Identifier: Apache-2.0
#include "plan/shadow_pass.h"

#include <utility>

#include "base/error.h"
#include "base/fault.h"

namespace sf::plan {

ShadowPass::ShadowPass(Tape& tape, const arch::ModelSpec& spec, const Schedule& plan,
                       std::vector<ShadowSegment> segments)
    : tape_(tape), spec_(spec), plan_(plan), segments_(std::move(segments)), saved_(spec.segments.size()) {
  SF_ASSERT(segments_.size() == spec.segments.size() && plan.groups.size() == spec.segments.size());
  for (size_t s = 0; s < spec.segments.size(); ++s) {
    for (const std::string& name : spec.segments[s].reads) last_reader_[name] = s;
    for (const std::string& name : spec.segments[s].writes) writer_[name] = s;
  }
}

NamedShades ShadowPass::parameters_of(size_t s) {
  NamedShades parameters;
  for (const std::string& name : spec_.segments[s].parameters) {
    const arch::Parameter& parameter = *spec_.find(spec_.storage_of(name));
    bool full = plan_.options.full.contains(parameter.name);
    Dtype type = full ? Dtype::kF32 : plan_.options.compute;
    parameters[name] = parameter.trainable ? tape_.leaf(parameter.shape, type) : tape_.borrowed(parameter.shape, type);
  }
  return parameters;
}

void ShadowPass::run(NamedShades inputs, const std::string& loss) {
  boundaries_ = std::move(inputs);
  for (size_t s = 0; s < segments_.size(); ++s) forward(s);
  gradients_[loss] = tape_.make({}, Dtype::kF32);
  boundaries_.clear();
  for (size_t s = segments_.size(); s-- > 0;)
    if (plan_.groups[s].needs_graph) differentiate(s);
}

void ShadowPass::forward(size_t s) {
  const arch::Segment& segment = spec_.segments[s];
  NamedShades inputs;
  for (const std::string& name : segment.reads)
    if (auto found = boundaries_.find(name); found != boundaries_.end()) inputs[name] = found->second;
  NamedShades outputs;
  if (segments_[s].forward) outputs = segments_[s].forward(parameters_of(s), inputs);
  bool graph = plan_.groups[s].needs_graph;
  for (const auto& [name, value] : outputs) {
    Shade boundary = value.detached();
    bool wanted = graph && (value.needs_gradient() || (segments_[s].exchange && value.type == Dtype::kF32));
    if (wanted) boundary = tape_.leaf(value.shape, value.type, value.memory);
    boundaries_[name] = std::move(boundary);
  }
  if (graph && !segments_[s].exchange) save(s, std::move(inputs), std::move(outputs));
  for (const std::string& name : segment.reads)
    if (last_reader_.at(name) == s) boundaries_.erase(name);
}

void ShadowPass::save(size_t s, NamedShades inputs, NamedShades outputs) {
  if (fault("plan.forget_graph")) outputs.clear();
  Saved& saved = saved_[s];
  Mode mode = plan_.groups[s].mode;
  if (mode == Mode::kKeep || s + 1 == segments_.size()) {
    std::erase_if(inputs, [](const auto& input) { return !input.second.needs_gradient(); });
    saved.outputs = std::move(outputs);
  } else if (mode == Mode::kOffload) {
    for (auto& [name, value] : inputs) {
      if (!writer_.contains(name)) continue;
      saved.spilled.push_back(name);
      value.memory = nullptr;
    }
  }
  saved.inputs = std::move(inputs);
}

void ShadowPass::differentiate(size_t s) {
  NamedShades seeds;
  for (const std::string& name : spec_.segments[s].writes) {
    auto found = gradients_.find(name);
    if (found == gradients_.end()) continue;
    seeds.insert(*found);
    gradients_.erase(found);
  }
  if (segments_[s].exchange) {
    for (auto& [name, gradient] : segments_[s].exchange(std::move(seeds))) add_gradient(name, std::move(gradient));
    return;
  }
  Saved saved = std::exchange(saved_[s], {});
  if (seeds.empty()) return;
  for (const std::string& name : saved.spilled) {
    Shade& input = saved.inputs.at(name);
    bool wanted = input.needs_gradient();
    input = tape_.make(input.shape, input.type);
    if (wanted) input = tape_.leaf(input.shape, input.type, std::move(input.memory));
  }
  if (saved.outputs.empty()) saved.outputs = segments_[s].forward(parameters_of(s), saved.inputs);
  Shades roots, gradients;
  for (const auto& [name, seed] : seeds) {
    if (!saved.outputs.at(name).needs_gradient()) continue;
    roots.push_back(saved.outputs.at(name));
    gradients.push_back(seed);
  }
  tape_.run_backward(roots, std::move(gradients));
  for (const auto& [name, input] : saved.inputs)
    if (input.needs_gradient() && input.node->leaf && input.node->gradient.memory)
      add_gradient(name, std::exchange(input.node->gradient, {}));
}

void ShadowPass::add_gradient(const std::string& name, Shade gradient) {
  Shade& sum = gradients_[name];
  sum = sum.memory ? tape_.make(gradient.shape, gradient.type) : std::move(gradient);
}

}  // namespace sf::plan
