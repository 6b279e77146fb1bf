// SPDX-License-Identifier: Apache-2.0
// What the main files of a checkpoint are called. Private to this room.
#pragma once
#include <filesystem>
#include <string>

#include "base/json.h"

namespace sf::ckpt {

// A model's: config.json, model.safetensors or shards of it. An adapter's, as PEFT has them: adapter_config.json,
// adapter_model.safetensors, never in shards.
struct Layout {
  bool adapter = false;

  std::string config() const { return adapter ? "adapter_config.json" : "config.json"; }
  std::string tensors() const { return adapter ? "adapter_model.safetensors" : "model.safetensors"; }
};
// Of a directory: a model's wherever there is a config.json.
Layout layout_of(const std::filesystem::path& dir);
// Of what has this configuration.
Layout layout_for(const Json& config);

}  // namespace sf::ckpt
