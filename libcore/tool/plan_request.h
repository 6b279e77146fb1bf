// SPDX-License-Identifier: Apache-2.0
// From settings to what a plan is made of: shapes of target and draft, micro-batches, limits.
#pragma once
#include <functional>
#include <string>

#include "app/command.h"
#include "arch/decoder.h"
#include "arch/drafts.h"
#include "config/settings.h"
#include "tool/plan_advice.h"
#include "tool/plan_report.h"

namespace sf::tool {

// What the data of a run is at most.
struct Samples {
  int64_t width = 0;          // tokens of a row
  Dtype type = Dtype::kBF16;  // of captured features
  uint64_t credit_bytes = 0;  // of samples under way to one rank; 0: they lie in files
};
// sf-shard plan: capture.max_length and, of a draft's features, capture.feature_dtype and stream.credit_mib.
Samples apply_samples(config::Settings& settings, bool features);

// From the shapes of what is trained and [training], [engine], [shard]; micro-batches are taken as full.
PlanRequest draft_request(config::Settings& settings, const arch::DraftFamily& family, const Json& config, bool tied,
                          const Samples& samples, int world);
PlanRequest sft_request(config::Settings& settings, const arch::Decoder& model,
                        const std::vector<arch::Adapter>& adapters, const Samples& samples, int world);

// plan.algorithm, plan.target and plan.draft say which. kConfig naming the key for shapes that do not fit each other.
PlanRequest plan_request(config::Settings& settings, int world);
// Fills in the limits: `memory` of one rank in bytes (0: what this host gives), `bandwidth` in bytes a second.
void set_limits(PlanRequest& request, uint64_t memory, uint64_t bandwidth);
inline constexpr uint64_t kUsualBandwidth = 10'000'000'000;
// Under engine.mode = "auto": a mode for each segment, such that the fullest rank stays within engine.memory, or, if it
// is not given, within request.memory. `agree` makes one limit of those of all ranks. Applies engine.memory.
void apply_modes(config::Settings& settings, PlanRequest& request,
                 const std::function<uint64_t(uint64_t limit)>& agree = {});
// Resolves, predicts and prints; kConfig, with what would help, if a rank needs more than it may use. Returns 0.
int plan_by(app::Invocation& invocation, int world, const RequestOf& request_of);

}  // namespace sf::tool
