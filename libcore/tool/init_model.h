// SPDX-License-Identifier: Apache-2.0
// sf-init model: a GGUF file or a Hugging Face directory becomes a checkpoint directory with tokenizer and manifest.
#pragma once
#include <filesystem>
#include <optional>

#include "base/dtype.h"
#include "base/json.h"
#include "tool/progress.h"

namespace sf::tool {

struct InitModelOptions {
  std::filesystem::path source, out;
  // Storage of every parameter: F32, F16 or BF16. Default: each as the source stores it; F32 for a quantised tensor of a
  // GGUF file.
  std::optional<Dtype> dtype;
  std::string tied_from;     // which of two tied names counts if their bytes differ; empty: refuse (kData)
  bool strict = false;       // refuse (kData) weights that are NaN or infinite once stored, instead of warning
  bool resume = false;       // go on from the files that a killed process of the same job had finished
  uint64_t shard_bytes = 0;  // of a file at most; 0: the usual
  int ranks = 0;             // files such that each of so many readers has one of its own; 0: as shard_bytes says
  Reporter report;
};

// Returns the directory published. Errors: kNoInput (source or its tokenizer.json missing), kConfig (architecture or
// setting not supported, by name), kData (bad file; missing, unexpected or misshapen tensors, by name), kCantCreate
// (`out` exists), kIo (full disk; nothing is left behind).
std::filesystem::path init_model(const InitModelOptions& options);

// What init_model would do, after the same checks and without writing: source format, family, dtype, parameters, bytes,
// aliases, buffers to recompute.
Json plan_model(const InitModelOptions& options);

}  // namespace sf::tool
