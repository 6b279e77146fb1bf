// SPDX-License-Identifier: Apache-2.0
#include "block_step.h"

#include <algorithm>
#include <cmath>

namespace sf::golden {

BlockStep::BlockStep(const Case& c, arch::ModelSpec described, std::vector<model::Segment> segments,
                     const train::Objective& given, std::vector<std::string> kept)
    : file(c.tensors()), spec(std::move(described)), objective(given), engine(*group, spec, std::move(segments), {}) {
  for (const arch::Parameter& p : spec.parameters) {
    at::Tensor value = load(file, p.name == arch::kTargetEmbedding ? "target/embed_tokens.weight"
                                  : p.name == arch::kTargetHead    ? "target/lm_head.weight"
                                                                   : "weights/" + p.name);
    engine.load(p.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
      std::copy_n(value.const_data_ptr<float>() + lo, hi - lo, to.data());
    });
  }
  for (const char* name : {"input_ids", "loss_mask", "hidden_states"})
    batch[name] = load(file, std::string("batch/") + name);
  if (file.find("batch/target_last_hidden_states")) batch["final_norm"] = load(file, "batch/target_last_hidden_states");
  at::Tensor ids = batch["input_ids"];
  batch["lengths"] = ids.new_full({ids.size(0)}, ids.size(1));
  batch["anchors"] = load(file, "anchors/positions").masked_fill(load(file, "anchors/keep").logical_not(), -1);
  counts = objective.counts(batch);
  objective.weigh(batch, {counts});
  kept.insert(kept.end(), {objective.loss(), objective.sums()});
  out = engine.round(batch, objective.loss(), kept);
}

std::span<const double> BlockStep::sums() const {
  const at::Tensor& sums = out.at(objective.sums());
  return {sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())};
}

double BlockStep::metric(const std::string& name) const {
  for (const auto& [found, value] : objective.metrics(sums(), {counts}))
    if (found == name) return value;
  return NAN;
}

}  // namespace sf::golden
