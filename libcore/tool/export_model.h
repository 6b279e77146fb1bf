// SPDX-License-Identifier: Apache-2.0
// sf-shard export: a checkpoint of a model, an EAGLE3 draft or an adapter becomes a directory that others read.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/json.h"
#include "tool/progress.h"

namespace sf::tool {

struct ExportOptions {
  std::filesystem::path checkpoint, out, target;  // target: of a draft; empty: where the draft's manifest says it is
  std::string to;                                 // "hf", "peft", "sglang", "vllm"
  std::optional<Dtype> dtype;                     // of the parameters; default: as stored
  Reporter report;
};

// Adapters: PEFT's two files, which sglang and vllm read too. Models: Hugging Face names, one name of tied tensors,
// tokenizer and settings beside them; the same for all three. Drafts (eagle_dflash 1.1, 1.8, 9): hf with the target's
// embedding; sglang without it; vllm without it and t2d, the block under "layers.0.". Before it is published the
// directory is read back and proved: exactly the wanted tensors in their shapes, values equal to the checkpoint's, a
// config.json that says what ours did, in both schemas of RoPE. Returns the directory. kConfig: an architecture we
// cannot export; kData: the checkpoint lacks something; kProtocol: another target; kCantCreate: `out` exists.
std::filesystem::path export_model(const ExportOptions& options);
// The same up to the first write, and all bytes of the checkpoint; touches nothing.
Json plan_export(const ExportOptions& options);

}  // namespace sf::tool
