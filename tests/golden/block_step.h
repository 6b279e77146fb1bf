// SPDX-License-Identifier: Apache-2.0
// What the cases of drafts of blocks share: weights into an engine of one rank, the given anchors into a batch.
#pragma once
#include <memory>

#include "arch/dflash.h"
#include "comm/group.h"
#include "train/objective.h"
#include "train_step.h"

namespace sf::golden {

struct BlockStep {
  ckpt::SafetensorsFile file;
  arch::ModelSpec spec;
  const train::Objective& objective;
  std::unique_ptr<comm::Group> group = comm::make_single();
  engine::Engine engine;
  model::Tensors batch, out;
  std::vector<int64_t> counts;

  // Runs the round: loss, sums and the boundaries named.
  BlockStep(const Case& c, arch::ModelSpec described, std::vector<model::Segment> segments,
            const train::Objective& given, std::vector<std::string> kept = {});
  // The metric of this name; NaN if there is none.
  double metric(const std::string& name) const;
  std::span<const double> sums() const;
};

}  // namespace sf::golden
