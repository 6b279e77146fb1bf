// SPDX-License-Identifier: Apache-2.0
// sf-shard import: what other tools wrote becomes a checkpoint.
#pragma once
#include <filesystem>
#include <optional>

#include "base/dtype.h"
#include "base/json.h"
#include "tool/progress.h"
#include "tool/warm_start.h"

namespace sf::tool {

struct ImportOptions {
  // Of a model: a Hugging Face directory (safetensors, or pickled weights), a global_step_N of verl. Of an EAGLE3
  // draft: a Hugging Face directory (as sglang, vLLM or SpecForge have it), a training state of SpecForge or the
  // directory that holds one, or any file of safetensors or torch.save with its tensors. Of an adapter: a directory as
  // PEFT saves it.
  std::filesystem::path source, out;
  std::filesystem::path target;        // of a draft or an adapter: the checkpoint it belongs to
  std::filesystem::path draft_config;  // of a draft whose source has no config.json
  std::optional<Dtype> dtype;          // of the parameters; default: as stored
  // Of a draft: what the source lacks begins anew, what it holds besides is left, and both are told and kept in the
  // manifest; else both are refused.
  std::optional<WarmStart> warm;
  Reporter report;
};

// Returns the checkpoint published. Errors as init_model; kData: tensors missing, left over or misshapen (all listed),
// a vocabulary map that contradicts itself, or an embedding that is not the target's; kUsage: a draft or an
// adapter without --target.
std::filesystem::path import_model(const ImportOptions& options);
// The same up to the first write, and all bytes of a checkpoint that is the source; touches nothing.
Json plan_import(const ImportOptions& options);

}  // namespace sf::tool
