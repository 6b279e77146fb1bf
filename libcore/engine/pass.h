// SPDX-License-Identifier: Apache-2.0
// One micro-batch through the chain: forward, then reverse with one autograd call a segment. Every rank makes the same
// collective calls, with a micro-batch or without.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/copies.h"
#include "engine/engine.h"
#include "engine/spill.h"
#include "engine/store.h"

namespace sf::engine {

// What a pass asks of the engine around it.
struct PassCalls {
  // Before each use, `time` as in plan::use_at: the group is in its slot when it returns. `end`: of the pass.
  std::function<void(int64_t time, int64_t end)> prepare;
  // Gradients of the group's trainable leaves (undefined: not used); no value without a micro-batch.
  std::function<void(size_t group, std::optional<std::vector<at::Tensor>> gradients)> fold;
};

class Pass {
 public:
  // All but `calls` outlives the pass.
  struct Places {
    Copies& copies;
    Spill& spill;
  };
  Pass(const plan::Schedule& plan, const std::vector<model::Segment>& segments, const EngineOptions& options,
       const Store& store, Places places, PassCalls calls);

  // `inputs`: boundaries given from outside, or nothing. With `graph`, what backward() needs is kept.
  void forward(const std::optional<model::Tensors>& inputs, bool graph, const std::vector<std::string>& keep);
  void backward(const std::string& loss);
  model::Tensors take_kept() { return std::move(kept_); }

 private:
  struct Saved {
    model::Tensors inputs;                // boundaries read: leaves of this segment's graph
    model::Tensors outputs;               // with their graph; empty if it is built again
    std::optional<Leaves> leaves;         // of that graph, if they are copies
    std::map<std::string, bool> spilled;  // inputs that are in the file, and whether they need a gradient
    int64_t handles = 0;                  // on parameters, that the graph of `outputs` holds
  };
  Exchange* exchange_of(size_t s) const;
  model::Tensors inputs_of(size_t s) const;
  void run_segment(size_t s, bool graph);
  void save(size_t s, model::Tensors inputs, model::Tensors outputs, std::optional<Leaves> leaves);
  Saved take_saved(size_t s);
  void exchange_forward(size_t s, bool graph);
  void exchange_backward(size_t s);
  void put(const std::string& name, const at::Tensor& value, bool graph);
  void drop_read(size_t s);
  void add_gradient(const std::string& name, const at::Tensor& gradient);
  const Leaves& used(size_t s, const std::optional<Leaves>& copies) const {
    return copies ? *copies : store_.leaves(s);
  }
  model::Tensors call(size_t s, const model::Tensors& inputs, const Leaves& leaves, bool graph) const;
  void check_output(size_t s, const std::string& name, const at::Tensor& value) const;
  void check_handles(size_t s, int64_t wanted) const;
  std::vector<at::Tensor> differentiate(size_t s);
  void seed(const std::string& loss);

  const plan::Schedule& plan_;
  const std::vector<model::Segment>& segments_;
  const EngineOptions& options_;
  const Store& store_;
  Copies& copies_;
  Spill& spill_;
  PassCalls calls_;
  bool present_ = false;
  std::set<std::string, std::less<>> wanted_;  // boundaries to return
  std::map<std::string, size_t, std::less<>> last_reader_;
  std::set<std::string, std::less<>> written_;  // boundaries that some segment writes
  model::Tensors boundaries_, kept_, gradients_;
  std::vector<Saved> saved_;
};

}  // namespace sf::engine
