// SPDX-License-Identifier: Apache-2.0
// sf-init lora: a new adapter for a target, in the files that PEFT reads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arch/adapter.h"
#include "base/dtype.h"
#include "base/json.h"
#include "config/settings.h"
#include "tool/progress.h"

namespace sf::tool {

struct InitLoraOptions {
  std::filesystem::path target, out;
  arch::Lora lora;  // a pattern "all-linear" is replaced by the endings it stands for
  uint64_t seed = 0;
  Dtype dtype = Dtype::kF32;  // F32 or BF16
  Reporter report;
};

// [lora] but for its seed; all-linear stands for itself.
arch::Lora apply_lora(config::Settings& settings);
// What `lora` adapts of a target; all-linear becomes the endings there are. kConfig naming the key for what matches
// nothing.
std::vector<arch::Adapter> new_adapters(arch::Lora& lora, const arch::ModelSpec& spec);

// Returns the directory published: adapter_model.safetensors, adapter_config.json and a manifest that names the target.
// A is uniform in +-1/sqrt(in) (kaiming_uniform with a = sqrt(5)) and B zero, so the adapter changes nothing yet
// (rl_lora L-03); values depend on (seed, parameter, element) alone. kConfig: targets that match nothing, or a family
// that is unknown; kNoInput: no such target; kCantCreate: `out` exists.
std::filesystem::path init_lora(const InitLoraOptions& options);
Json plan_lora(const InitLoraOptions& options);

// "q_proj,v_proj" (names or endings of them), "all-linear", or "re:EXPRESSION" over whole names.
arch::Selection selection_from_text(std::string_view text);
// "q_proj=16,layers.0.mlp.up_proj=4": in that order. kConfig for what is no rank, or no number.
std::vector<std::pair<std::string, int64_t>> ranks_from_text(std::string_view text);
std::vector<std::pair<std::string, double>> alphas_from_text(std::string_view text);

}  // namespace sf::tool
