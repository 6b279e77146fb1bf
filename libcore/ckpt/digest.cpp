// SPDX-License-Identifier: Apache-2.0
#include "ckpt/digest.h"

#include <fmt/core.h>

#include "base/file.h"
#include "base/hash.h"
#include "ckpt/layout.h"
#include "ckpt/safetensors.h"

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
  UniqueFd fd = open_read(path);
  uint64_t size = std::filesystem::file_size(path);
  std::vector<std::byte> buffer(std::min<uint64_t>(size, kBounceBytes));
  Xxh3 hash;
  for (uint64_t at = 0; at < size; at += buffer.size()) {
    std::span<std::byte> part(buffer.data(), std::min<uint64_t>(buffer.size(), size - at));
    pread_exact(fd.get(), part, at, path);
    hash.update(part);
  }
  return hex64(hash.digest());
}

bool is_shard_name(std::string_view name) {
  constexpr std::string_view kForm = "model-#####-of-#####.safetensors";
  if (name.size() != kForm.size()) return false;
  for (size_t i = 0; i < name.size(); ++i)
    if (kForm[i] == '#' ? name[i] < '0' || name[i] > '9' : name[i] != kForm[i]) return false;
  return true;
}

bool holds_tensors(std::string_view file) {
  return file == Layout{false}.tensors() || file == Layout{true}.tensors() || is_shard_name(file);
}

}  // namespace sf::ckpt
