// SPDX-License-Identifier: Apache-2.0
// How a checkpoint's identity is made. Private to this room.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "base/shape.h"

namespace sf::ckpt {

struct TensorDigest {
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::string digest;  // xxh3 of the bytes, 16 hex digits
};

// SHA-256 over one line for each tensor, sorted by name, and the text of config.json.
std::string identity_of(const std::map<std::string, TensorDigest>& tensors, std::string_view config_text);
std::string file_digest(const std::filesystem::path& path);  // xxh3, 16 hex digits
// "model-00001-of-00003.safetensors"
bool is_shard_name(std::string_view name);
// A file of a checkpoint's tensors, whose digests the manifest holds tensor by tensor; of all others it holds the
// file's.
bool holds_tensors(std::string_view file);

}  // namespace sf::ckpt
