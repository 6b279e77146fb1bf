// SPDX-License-Identifier: Apache-2.0
#include "plan/tape.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "plan/schedule.h"

namespace sf::plan {
namespace {

// Gradients on their way to a node, by output.
using Buffers = std::map<Node*, Shades>;

// As LibTorch's input buffer: the first is kept as it is; the next is added in place if nobody else sees the memory,
// else into a new tensor.
void arrive(Tape& tape, Buffers& buffers, const std::shared_ptr<Node>& to, size_t output, Shade gradient) {
  Shades& waiting = buffers[to.get()];
  waiting.resize(to->outputs);
  Shade& place = waiting[output];
  if (!place.memory) {
    place = std::move(gradient);
  } else if (place.memory.use_count() > 1) {
    place = tape.make(place.shape, place.type);
  }
}

void count_edges(Node& node, std::map<Node*, int>& waits) {
  for (const std::shared_ptr<Node>& input : node.inputs) {
    if (!input) continue;
    if (waits[input.get()]++ == 0) count_edges(*input, waits);
  }
}

}  // namespace

Block::Block(Tape& tape, uint64_t bytes) : tape_(tape), bytes_(bytes) {
  tape_.live_ += bytes_;
  tape_.peak_ = std::max(tape_.peak_, tape_.live_);
}

Block::~Block() {
  tape_.live_ -= bytes_;
}

Shade Shade::as(Shape other) const {
  SF_ASSERT(numel(other) <= numel(shape));
  Shade view = *this;
  view.shape = std::move(other);
  return view;
}

Shade Shade::detached() const {
  Shade view = *this;
  view.node = nullptr;
  return view;
}

Shade Tape::make(Shape shape, Dtype type) {
  uint64_t bytes = aligned_bytes(numel(shape), type);
  return {std::move(shape), type, std::make_shared<Block>(*this, bytes), nullptr, 0};
}

Shade Tape::borrowed(Shape shape, Dtype type) const {
  return {std::move(shape), type, nullptr, nullptr, 0};
}

Shade Tape::leaf(Shape shape, Dtype type, std::shared_ptr<Block> memory) {
  auto node = std::make_shared<Node>();
  node->leaf = true;
  return {std::move(shape), type, std::move(memory), std::move(node), 0};
}

void Tape::record(Shades& outputs, const Shades& inputs, std::function<Shades(const Shades&)> backward) {
  if (std::none_of(inputs.begin(), inputs.end(), [](const Shade& input) { return input.needs_gradient(); })) return;
  auto node = std::make_shared<Node>();
  node->sequence = ++sequence_;
  node->outputs = outputs.size();
  node->backward = std::move(backward);
  for (const Shade& input : inputs) {
    node->inputs.push_back(input.node);
    node->input_outputs.push_back(input.output);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].node = node;
    outputs[i].output = i;
  }
}

void Tape::run_backward(const Shades& roots, Shades gradients) {
  std::map<Node*, int> waits;
  Buffers buffers;
  std::vector<std::shared_ptr<Node>> ready;
  for (size_t i = 0; i < roots.size(); ++i) {
    if (!roots[i].node) continue;
    if (waits.emplace(roots[i].node.get(), 0).second) count_edges(*roots[i].node, waits);
    arrive(*this, buffers, roots[i].node, roots[i].output, std::move(gradients[i]));
  }
  for (const Shade& root : roots)
    if (root.node && waits[root.node.get()] == 0 && std::find(ready.begin(), ready.end(), root.node) == ready.end())
      ready.push_back(root.node);
  gradients.clear();
  while (!ready.empty()) {
    auto latest = std::max_element(ready.begin(), ready.end(),
                                   [](const auto& a, const auto& b) { return a->sequence < b->sequence; });
    std::shared_ptr<Node> node = std::move(*latest);
    ready.erase(latest);
    Shades arrived = std::move(buffers[node.get()]);
    buffers.erase(node.get());
    if (node->leaf) {
      node->gradient = std::move(arrived[0]);
      continue;
    }
    arrived.resize(node->outputs);
    Shades made = node->backward(arrived);
    arrived.clear();
    node->backward = nullptr;  // what it saved is released
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const std::shared_ptr<Node>& to = node->inputs[i];
      if (!to) continue;
      if (i < made.size() && made[i].memory) arrive(*this, buffers, to, node->input_outputs[i], std::move(made[i]));
      if (--waits[to.get()] == 0) ready.push_back(to);
    }
  }
}

}  // namespace sf::plan
