// SPDX-License-Identifier: Apache-2.0
// The path by which a run comes to its weights, in named steps that every rank takes in the same order (rl_lora 1.3).
// Shapes, aliases and types are known before, from config.json alone; no rank ever holds a whole model.
//
//   files      every rank opened the same ones: identities compared
//   shards     the plan; host-resident parameters mapped, or copied once a host; memory for this rank's intervals, with
//              one place for a parameter and all its aliases; moments of what trains
//   buffers    each is listed, in its type, and comes back as it was published
//   values     this rank's intervals of every parameter, of tensors whose bytes are those that were published
//   state      masters, moments and cursor of the checkpoint that the run goes on from
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/command.h"
#include "comm/group.h"

namespace sf::run {

class Loading {
 public:
  // Borrows both.
  Loading(app::Invocation& invocation, comm::Group& group, double deadline_s);
  // Every rank calls it. `body` makes no collective call, or fails on all ranks alike: an error of one rank is every
  // rank's, with its status and words.
  void step(std::string_view name, const std::function<void()>& body);
  // Step "files": (what it is, its identity), equal on all ranks or kData naming both.
  void compare_files(const std::vector<std::pair<std::string, std::string>>& identities);
  void finish() const;  // one line: the steps and their seconds

 private:
  app::Invocation& invocation_;
  comm::Group& group_;
  double deadline_s_;
  std::string line_;
};

}  // namespace sf::run
