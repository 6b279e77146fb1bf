// SPDX-License-Identifier: Apache-2.0
// The shadow of engine::Pass: one micro-batch through a chain of segments, forward and back, in the modes of a
// schedule. What it counts is what lives between segments too: boundaries, graphs that are kept, gradients under way.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "arch/model_spec.h"
#include "plan/schedule.h"
#include "plan/tape.h"

namespace sf::plan {

using NamedShades = std::map<std::string, Shade, std::less<>>;

// Stands in for the segment of the same place in a model's description.
struct ShadowSegment {
  // Parameters (by the names that the segment calls them) and the boundaries it reads -> those it writes.
  std::function<NamedShades(const NamedShades& parameters, const NamedShades& boundaries)> forward;
  // Set where the table of a segment is exchanged, if a gradient comes to it: gradients of boundaries written -> read.
  std::function<NamedShades(NamedShades gradients)> exchange;
};

class ShadowPass {
 public:
  // All but `segments` outlives the pass. `segments`: one for each of `spec`, none for a segment that takes nothing.
  ShadowPass(Tape& tape, const arch::ModelSpec& spec, const Schedule& plan, std::vector<ShadowSegment> segments);
  // `inputs`: the micro-batch, which belongs to somebody else. `loss`: the boundary to differentiate.
  void run(NamedShades inputs, const std::string& loss);

 private:
  struct Saved {
    NamedShades inputs, outputs;
    std::vector<std::string> spilled;
  };
  NamedShades parameters_of(size_t s);
  void forward(size_t s);
  void save(size_t s, NamedShades inputs, NamedShades outputs);
  void differentiate(size_t s);
  void add_gradient(const std::string& name, Shade gradient);

  Tape& tape_;
  const arch::ModelSpec& spec_;
  const Schedule& plan_;
  std::vector<ShadowSegment> segments_;
  std::map<std::string, size_t, std::less<>> last_reader_, writer_;
  NamedShades boundaries_, gradients_;
  std::vector<Saved> saved_;
};

}  // namespace sf::plan
