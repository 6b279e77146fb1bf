// SPDX-License-Identifier: Apache-2.0
// sf-shard inspect: what a checkpoint, a Hugging Face directory, a safetensors or GGUF file or a directory of features
// holds.
#pragma once
#include <filesystem>
#include <string>

#include "base/json.h"

namespace sf::tool {

struct Inspection {
  std::string table;  // for people: summary, then one line a tensor; ends with a newline
  Json json;          // the same, for machines
};

// Reads headers only; with `digests` all bytes, to name the XXH3 of each tensor (a checkpoint's manifest names them
// anyway). A directory of features is read in full and its hashes checked. Throws as open_tensors, and kData for a
// damaged record of features.
Inspection inspect(const std::filesystem::path& path, bool digests = false);

}  // namespace sf::tool
