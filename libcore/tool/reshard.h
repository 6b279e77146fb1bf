// SPDX-License-Identifier: Apache-2.0
// sf-shard reshard: the same checkpoint in other files.
#pragma once
#include <cstdint>
#include <filesystem>

#include "base/json.h"
#include "tool/progress.h"

namespace sf::tool {

struct ReshardOptions {
  std::filesystem::path checkpoint, out;
  uint64_t shard_bytes = UINT64_MAX;  // tensors of a file, unless one is larger alone; the default makes one file
  Reporter report;
};

// Checkpoints are read by interval whatever their files, so that no number of ranks needs this; copying and serving
// may. Manifest, aliases, moments and all other files stay as they are; the identity is proved to be the old one.
// What the ranks of verl saved becomes a checkpoint, as sf-init model makes it.
// Returns the directory. kData: not published by us, or not whole; kCantCreate: `out` exists.
std::filesystem::path reshard(const ReshardOptions& options);
// The same up to the first write; touches nothing.
Json plan_reshard(const ReshardOptions& options);

}  // namespace sf::tool
