// SPDX-License-Identifier: Apache-2.0
// The shadow of a computation: sizes without values. A model written once more against it, operator by operator, says
// how many bytes forward and backward hold at any time, before anything is allocated. It follows what LibTorch's
// autograd does on one thread: what each operator saves and makes on the way, gradients that wait for their consumer,
// the order in which nodes run (latest first), and what is released when.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"

namespace sf::plan {

class Tape;

// Memory that lives as long as somebody holds it. Bytes as the allocator counts them: rounded up to 64.
class Block {
 public:
  Block(Tape& tape, uint64_t bytes);
  ~Block();
  Block(const Block&) = delete;

 private:
  Tape& tape_;
  uint64_t bytes_;
};

struct Node;

// A tensor's shadow: its memory (shared by views; null for one that belongs to somebody else, as a parameter), its
// extents, and where its gradient goes.
struct Shade {
  Shape shape;
  Dtype type = Dtype::kF32;
  std::shared_ptr<Block> memory;
  std::shared_ptr<Node> node;  // null: needs no gradient
  size_t output = 0;           // of the node
  bool dense = true;           // row-major without gaps: operators that want this copy what is not

  int64_t elements() const { return numel(shape); }
  bool needs_gradient() const { return node != nullptr; }
  Shade as(Shape other) const;  // a view
  Shade detached() const;
};

using Shades = std::vector<Shade>;

// What an operator leaves for backward. `backward` gets the gradients of its outputs (without memory: none arrived) and
// returns one for each input; it may allocate, and what it holds at its end but does not return is free again.
struct Node {
  uint64_t sequence = 0;
  std::vector<std::shared_ptr<Node>> inputs;  // null: that input needs no gradient
  std::vector<size_t> input_outputs;
  size_t outputs = 1;
  std::function<Shades(const Shades& gradients)> backward;  // holds what was saved; cleared when it ran
  bool leaf = false;
  Shade gradient;  // of a leaf
};

class Tape {
 public:
  Shade make(Shape shape, Dtype type);                                           // allocates
  Shade borrowed(Shape shape, Dtype type) const;                                 // no memory of its own
  Shade leaf(Shape shape, Dtype type, std::shared_ptr<Block> memory = nullptr);  // wants a gradient

  // Joins `outputs` to a node if any input needs a gradient. The function is called only then.
  void record(Shades& outputs, const Shades& inputs, std::function<Shades(const Shades&)> backward);

  // Gradients of `roots`, one each, back to the leaves; `roots` are let go as LibTorch does it.
  void run_backward(const Shades& roots, Shades gradients);

  uint64_t live() const { return live_; }
  uint64_t peak() const { return peak_; }

 private:
  friend class Block;
  uint64_t live_ = 0, peak_ = 0, sequence_ = 0;
};

}  // namespace sf::plan
