// SPDX-License-Identifier: Apache-2.0
// sf-shard diff: where two sets of tensors differ, to the bit and in ulp.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"

namespace sf::tool {

struct DiffOptions {
  std::filesystem::path a, b;        // each a checkpoint, Hugging Face directory, safetensors or GGUF file
  std::optional<uint64_t> most_ulp;  // elements at most this far apart are equal; nullopt: bits decide
  bool values = false;               // element types and aliases may differ: only values count
};

struct Diff {
  bool equal = true;
  std::string table;  // for people: one line a difference (the first kListed), then the sum; ends with a newline
  Json json;          // the same, for machines
};

// Floating tensors of two types are compared as the narrower one (BF16 with F16 as F32). A tensor under a further name
// is compared under each of its names, once. Throws as open_model.
Diff diff(const DiffOptions& options);

}  // namespace sf::tool
