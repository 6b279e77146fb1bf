// SPDX-License-Identifier: Apache-2.0
// sf-shard inspect: what a checkpoint directory holds, without reading the tensors' bytes.
#pragma once
#include <filesystem>
#include <string>

#include "base/json.h"

namespace sf::tool {

struct Inspection {
  std::string table;  // for people: summary, then one line a tensor; ends with a newline
  Json json;          // the same, for machines
};

// Throws as ckpt::Checkpoint::open.
Inspection inspect(const std::filesystem::path& dir);

}  // namespace sf::tool
