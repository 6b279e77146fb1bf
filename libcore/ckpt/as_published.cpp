// SPDX-License-Identifier: Apache-2.0
#include "ckpt/as_published.h"

#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "ckpt/digest.h"
#include "ckpt/layout.h"

namespace sf::ckpt {
namespace {

namespace fs = std::filesystem;

// Files that change what a model says, were they added afterwards.
constexpr const char* kWords[] = {"chat_template.jinja", "generation_config.json", "special_tokens_map.json",
                                  "tokenizer.json", "tokenizer_config.json"};

// The small files whose bytes are not those that were published, or that nobody published.
std::vector<std::string> changed_files(const Checkpoint& files, const std::vector<std::string>& tensors) {
  std::vector<std::string> changed;
  std::error_code ignored;
  const auto& digests = files.manifest().digests;
  for (const auto& [name, digest] : digests) {
    // Tensors, and a trainer's moments: too many bytes for a start.
    if (std::binary_search(tensors.begin(), tensors.end(), name) || name.ends_with(".safetensors")) continue;
    bool plain = name.find('/') == std::string::npos && fs::is_regular_file(files.dir() / name, ignored);
    if (!plain || file_digest(files.dir() / name) != digest) changed.push_back(name);
  }
  for (const char* name : kWords)
    if (!digests.contains(name) && fs::exists(files.dir() / name, ignored)) changed.push_back(name);
  return changed;
}

bool same_identity(const Checkpoint& files, const std::vector<std::string>& tensors) {
  std::map<std::string, TensorDigest> described;
  for (const std::string& name : tensors) {
    auto digest = files.manifest().digests.find(name);
    if (digest == files.manifest().digests.end()) return false;
    TensorInfo info = files.stored_place(name).info;
    described[name] = {info.dtype, info.shape, digest->second};
  }
  return identity_of(described, read_file(files.dir() / layout_of(files.dir()).config())) == files.manifest().identity;
}

}  // namespace

void check_as_published(const Checkpoint& files) {
  if (!files.has_manifest() || fault("ckpt.take_changed")) return;
  std::vector<std::string> tensors = files.names(), changed = changed_files(files, tensors);
  SF_CHECK(
      changed.empty(), Exit::kData,
      "{} is not what was published: {} differ from the manifest; change them at the source and make the directory "
      "again",
      files.dir().string(), listed(changed));
  SF_CHECK(same_identity(files, tensors), Exit::kData,
           "{} is not what was published: names, types, shapes or digests of its tensors do not give its identity; "
           "sf-shard verify tells what differs",
           files.dir().string());
}

void compare_digest(const Checkpoint& files, std::string_view stored, uint64_t digest) {
  if (!files.has_manifest() || fault("ckpt.take_changed")) return;
  auto wanted = files.manifest().digests.find(std::string(stored));
  SF_CHECK(wanted != files.manifest().digests.end() && wanted->second == hex64(digest), Exit::kData,
           "{}: the bytes of tensor {} are not those that were published; sf-shard verify looks at all",
           files.dir().string(), stored);
}

void check_tensor(const Checkpoint& files, std::string_view name) {
  if (files.has_manifest()) compare_digest(files, files.place(name).info.name, xxh3_64(files.view(name).span()));
}

void check_share(const Checkpoint& files, std::set<std::string> tensors, Share share) {
  if (!files.has_manifest()) return;
  std::set<std::string> stored;
  for (const std::string& name : tensors) stored.insert(files.place(name).info.name);
  for (size_t i = 0; const std::string& name : stored) {
    if (i++ % share.world != share.rank) continue;
    const Checkpoint::Place place = files.stored_place(name);
    Xxh3 hash;
    place.file->stream(place.info, [&](const Piece& piece) { hash.update(piece.bytes); });
    compare_digest(files, name, hash.digest());
  }
}

void check_share(const Checkpoint& files, Share share) {
  const std::vector<std::string> names = files.names();
  check_share(files, std::set(names.begin(), names.end()), share);
}

void check_whole(const Checkpoint& files) {
  std::vector<std::string> wrong = files.verify();
  SF_CHECK(wrong.empty(), Exit::kData, "{} is not whole: {}", files.dir().string(), listed(wrong));
}

}  // namespace sf::ckpt
