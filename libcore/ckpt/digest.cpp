// SPDX-License-Identifier: Apache-2.0
#include "ckpt/digest.h"

#include <fmt/core.h>

#include "base/hash.h"
#include "base/mmap.h"

namespace sf::ckpt {

std::string identity_of(const std::map<std::string, TensorDigest>& tensors, std::string_view config_text) {
  std::string text;
  for (const auto& [name, t] : tensors)
    text += fmt::format("{}\t{}\t{}\t{}\n", name, name_of(t.dtype), to_string(t.shape), t.digest);
  text += '\n';
  text += config_text;
  return sha256_hex(text);
}

std::string file_digest(const std::filesystem::path& path) {
  return hex64(xxh3_64(MappedFile::open(path).bytes()));
}

}  // namespace sf::ckpt
