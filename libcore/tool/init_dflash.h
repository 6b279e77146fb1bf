// SPDX-License-Identifier: Apache-2.0
// sf-init draft dflash: a new DFlash draft for a target.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "tool/progress.h"

namespace sf::tool {

struct InitDflashOptions {
  std::filesystem::path target;  // checkpoint directory
  std::filesystem::path out;
  uint64_t seed = 0;
  Dtype dtype = Dtype::kF32;            // storage: F32 (masters) or BF16
  int64_t layers = 1, block = 16;       // of the draft; slots of a block
  int64_t mask_token = -1;              // -1: the first row of the target's embedding that no token has, else its eos
  std::vector<int64_t> capture_layers;  // our numbering; empty: arch::dflash_capture_layers
  Reporter report;
};

// Returns the directory published: config.json, model.safetensors (all parameters of the draft) and a manifest that
// names the target and which of its tables training takes. Matrices are normal(0, 0.02), norms one. Errors as
// init_draft's; kConfig if the target's every row is a token's and it names no end of sequence.
std::filesystem::path init_dflash(const InitDflashOptions& options);
// What it would do; touches nothing.
Json plan_dflash(const InitDflashOptions& options);

}  // namespace sf::tool
