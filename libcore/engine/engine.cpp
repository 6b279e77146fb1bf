// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <utility>

#include "base/error.h"
#include "engine/exchange.h"
#include "engine/state.h"
#include "tensor/device.h"
#include "tensor/memory.h"

namespace sf::engine {

Engine::Engine(comm::Group& group, const arch::ModelSpec& spec, std::vector<model::Segment> segments,
               EngineOptions options)
    : state_(std::make_unique<State>(group, spec, std::move(segments), std::move(options))) {}
Engine::~Engine() = default;

void Engine::load(const std::string& parameter, const ReadInterval& read) {
  state_->slots.forget();
  state_->copies.forget();
  size_t index = state_->store.index_of(parameter);
  state_->store.load(index, read);
  state_->hosts.load(index, read);
}

model::Tensors Engine::round(const std::optional<model::Tensors>& micro_batch, const std::string& loss,
                             const std::vector<std::string>& keep) {
  return state_->pass(micro_batch, &loss, keep);
}

model::Tensors Engine::forward(const std::optional<model::Tensors>& inputs, const std::vector<std::string>& keep) {
  return state_->pass(inputs, nullptr, keep);
}

StepResult Engine::step(double lr, double max_norm, const AdamW& adamw) {
  return state_->step(lr, max_norm, adamw);
}

at::Tensor Engine::gathered(const std::string& parameter) {
  return state_->parameter_whole(state_->store.index_of(parameter));
}

at::Tensor Engine::gathered_gradient(const std::string& parameter) {
  return state_->gradient_whole(state_->store.index_of(parameter));
}

std::vector<Engine::Piece> Engine::state() {
  std::vector<Piece> pieces;
  const Store& store = state_->store;
  for (size_t p = 0; p < state_->plan.parameters.size(); ++p) {
    const plan::Held& held = state_->plan.parameters[p];
    if (!held.trainable) continue;
    pieces.push_back({held.name, held.shape, store.owned(p), store.owned_master(p)});
    pieces.push_back({held.name + ".exp_avg", held.shape, store.owned(p), store.exp_avg(p)});
    pieces.push_back({held.name + ".exp_avg_sq", held.shape, store.owned(p), store.exp_avg_sq(p)});
  }
  return pieces;
}

void Engine::load_state(const std::string& name, const ReadInterval& read) {
  state_->load_state(name, read);
}

int64_t Engine::steps_done() const {
  return state_->steps_done;
}
void Engine::set_steps_done(int64_t steps) {
  SF_CHECK(steps >= 0, Exit::kSoftware, "{} steps done", steps);
  state_->steps_done = steps;
}

StepTimes Engine::take_times() {
  return std::exchange(state_->times, {});
}

MemoryReport Engine::predicted() const {
  const plan::Memory& memory = state_->plan.memory[static_cast<size_t>(state_->group.rank())];
  return {memory.total(), memory.total() + memory.gathered, memory.host, 0};
}

MemoryReport Engine::measured() const {
  return {state_->at_rest_bytes, tensor::memory().peak, 0, state_->spilled_bytes(),
          tensor::device_peak(state_->options.device)};
}

std::vector<std::string> Engine::host_lines() const {
  return state_->hosts.lines();
}
std::string Engine::plan_text() const {
  return state_->plan.text();
}
const plan::Schedule& Engine::schedule() const {
  return state_->plan;
}
comm::Group& Engine::group() {
  return state_->group;
}

}  // namespace sf::engine
