// SPDX-License-Identifier: Apache-2.0
// sf-shard verify: is everything there, and is it what was published?
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace sf::tool {

// Problems found, one line each; empty: the checkpoint is whole. Checks digests and identity (every byte is read),
// files nobody published, missing, unexpected and misshapen tensors against config.json's architecture, aliases,
// buffers (stored ones present and of their type; a draft's t2d and d2t agree; recomputed ones not stored). A directory
// that cannot be opened as a checkpoint (a file is missing, torn or no JSON) is one problem. Throws kNoInput if there
// is no such directory. A directory of features: its records' hashes.
std::vector<std::string> verify(const std::filesystem::path& dir);

}  // namespace sf::tool
