// SPDX-License-Identifier: Apache-2.0
// The model of a run of verl: model_world_size_N_rank_K.pt, where each rank saved its parts of distributed tensors
// (rl_lora 6). Read at any N as the one model it is.
// Private to this room.
#pragma once
#include <filesystem>
#include <optional>

#include "tool/tensor_set.h"

namespace sf::tool {

// Where the shards lie: the path itself, or its directory "actor" (of a global_step_N). None: not of verl.
std::optional<std::filesystem::path> verl_shards_in(const std::filesystem::path& path);

// Adds all tensors, whole, unsorted. A part is read where it lies; ranks that hold the same part must hold the same
// bytes (rl_lora C-33), compared as they are read. kData: files of ranks that are missing, parts that are missing or of
// another shape than the mesh says, all at once; an adapter beside its base, which has files of its own.
void add_verl(const std::filesystem::path& shards, TensorSet& set);

}  // namespace sf::tool
