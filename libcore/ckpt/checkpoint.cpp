// SPDX-License-Identifier: Apache-2.0
#include "ckpt/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "ckpt/digest.h"

namespace sf::ckpt {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kEmbedding = "model.embed_tokens.weight", kHead = "lm_head.weight";

// Names come from files: only plain base names may become paths.
void check_base_name(const std::string& name) {
  SF_CHECK(!name.empty() && name.find('/') == std::string::npos && name.find('\0') == std::string::npos &&
               name != "." && name != "..",
           Exit::kData, "\"{}\" is not a plain file name", name);
}

Json read_json(const fs::path& path) {
  return Json::parse(read_file(path), path.string());
}

// tensor name -> file name, in index.json's order of authority.
std::map<std::string, std::string> read_index(const fs::path& path) {
  std::map<std::string, std::string> map;
  Json index = read_json(path);
  try {
    for (const auto& [tensor, file] : index.at("weight_map").as_object()) {
      check_base_name(file.as_string());
      map[tensor] = file.as_string();
    }
  } catch (Error& error) {
    error.add_context(path.string());
    throw;
  }
  return map;
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& dir) {
  std::error_code ignored;
  SF_CHECK(fs::exists(dir, ignored), Exit::kNoInput, "{}: no such checkpoint directory", dir.string());
  SF_CHECK(fs::is_directory(dir, ignored), Exit::kNoInput, "{} is not a directory, wanted a checkpoint directory",
           dir.string());
  Checkpoint opened;
  opened.dir_ = dir;
  fs::path manifest = dir / "manifest.json";
  if (fs::exists(manifest, ignored)) {
    Json json = read_json(manifest);
    try {
      opened.manifest_ = manifest_from_json(json);
    } catch (Error& error) {
      error.add_context(manifest.string());
      throw;
    }
    opened.has_manifest_ = true;
  }
  opened.open_files();
  SF_CHECK(fs::exists(dir / "config.json", ignored), Exit::kNoInput, "{} has no config.json", dir.string());
  opened.config_ = read_json(dir / "config.json");
  opened.apply_aliases();
  return opened;
}

void Checkpoint::open_files() {
  std::error_code ignored;
  // Where both exist the single file counts, as in transformers.
  if (fs::exists(dir_ / "model.safetensors", ignored)) {
    files_.push_back(SafetensorsFile::open(dir_ / "model.safetensors"));
    for (const TensorInfo& info : files_[0].tensors()) stored_[info.name] = 0;
    return;
  }
  fs::path index = dir_ / "model.safetensors.index.json";
  if (!fs::exists(index, ignored)) {
    bool pickle =
        fs::exists(dir_ / "pytorch_model.bin", ignored) || fs::exists(dir_ / "pytorch_model.bin.index.json", ignored);
    SF_CHECK(!pickle, Exit::kData,
             "{} holds pickled weights (.bin), which can run code: convert them to safetensors first", dir_.string());
    fail(Exit::kNoInput, "{} is incomplete: neither model.safetensors nor model.safetensors.index.json is there",
         dir_.string());
  }
  std::map<std::string, size_t> opened;
  for (const auto& [tensor, file] : read_index(index)) {
    auto [at, fresh] = opened.emplace(file, files_.size());
    if (fresh) files_.push_back(SafetensorsFile::open(dir_ / file));
    SF_CHECK(files_[at->second].find(tensor), Exit::kData, "{}: the index places tensor \"{}\" in {}, which lacks it",
             index.string(), tensor, file);
    stored_[tensor] = at->second;
  }
}

void Checkpoint::apply_aliases() {
  for (const auto& [name, file] : stored_) where_[name] = {file, name};
  if (has_manifest_) {
    aliases_ = manifest_.aliases;
  } else if (config_.get_bool("tie_word_embeddings", false)) {
    if (stored_.contains(kEmbedding))
      aliases_ = {{std::string(kHead), std::string(kEmbedding)}};
    else if (stored_.contains(kHead))
      aliases_ = {{std::string(kEmbedding), std::string(kHead)}};
  }
  if (fault("ckpt.skip_alias")) return;
  for (const arch::Alias& alias : aliases_) {
    auto of = stored_.find(alias.of);
    SF_CHECK(of != stored_.end(), Exit::kData, "{}: \"{}\" is recorded as another name of \"{}\", which is not stored",
             dir_.string(), alias.name, alias.of);
    where_[alias.name] = {of->second, alias.of};
  }
}

bool Checkpoint::contains(std::string_view name) const {
  return where_.contains(name);
}

const std::pair<size_t, std::string>& Checkpoint::locate(std::string_view name) const {
  auto found = where_.find(name);
  if (found != where_.end()) return found->second;
  std::vector<std::string> near;
  for (const auto& [known, place] : where_) near.push_back(known);
  std::stable_sort(near.begin(), near.end(),
                   [&](const auto& a, const auto& b) { return common_prefix(a, name) > common_prefix(b, name); });
  near.resize(std::min<size_t>(near.size(), 3));
  fail(Exit::kData, "{}: no tensor \"{}\"; the nearest names are {}", dir_.string(), name,
       near.empty() ? "none: the directory holds no tensor" : fmt::format("{}", fmt::join(near, ", ")));
}

TensorInfo Checkpoint::info(std::string_view name) const {
  const auto& [file, stored] = locate(name);
  return *files_[file].find(stored);
}

TensorView Checkpoint::view(std::string_view name) const {
  const auto& [file, stored] = locate(name);
  return files_[file].view(stored);
}

void Checkpoint::read(std::string_view name, int64_t lo, int64_t hi, Dtype as, std::span<std::byte> to) const {
  TensorView whole = view(name);
  SF_ASSERT(0 <= lo && lo <= hi && hi <= numel(whole.shape));
  SF_ASSERT(to.size() == static_cast<size_t>(hi - lo) * size_of(as));
  size_t size = size_of(whole.dtype);
  convert(whole.span().subspan(static_cast<size_t>(lo) * size, static_cast<size_t>(hi - lo) * size), whole.dtype, to,
          as);
}

TensorView Checkpoint::stored(std::string_view name) const {
  auto found = stored_.find(name);
  SF_CHECK(found != stored_.end(), Exit::kData, "{}: no tensor is stored as \"{}\"", dir_.string(), name);
  return files_[found->second].view(name);
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> out;
  for (const auto& [name, file] : stored_) out.push_back(name);
  return out;
}

namespace {

std::string identity_from(const std::vector<SafetensorsFile>& files,
                          const std::map<std::string, size_t, std::less<>>& stored, const fs::path& dir,
                          std::map<std::string, TensorDigest>& digests) {
  for (const auto& [name, file] : stored) {
    TensorView view = files[file].view(name);
    digests[name] = {view.dtype, view.shape, hex64(xxh3_64(view.span()))};
  }
  return identity_of(digests, read_file(dir / "config.json"));
}

}  // namespace

std::string Checkpoint::identity() const {
  if (has_manifest_) return manifest_.identity;
  std::map<std::string, TensorDigest> digests;
  return identity_from(files_, stored_, dir_, digests);
}

std::vector<std::string> Checkpoint::verify() const {
  if (!has_manifest_) return {};
  std::set<std::string> wrong;
  std::map<std::string, TensorDigest> found;
  if (identity_from(files_, stored_, dir_, found) != manifest_.identity) wrong.insert("identity");
  for (const auto& [name, tensor] : found) {
    auto wanted = manifest_.digests.find(name);
    if (wanted == manifest_.digests.end() || wanted->second != tensor.digest) wrong.insert(name);
  }
  for (const auto& [name, digest] : manifest_.digests) {
    if (found.contains(name)) continue;
    std::error_code ignored;
    bool plain = name.find('/') == std::string::npos && name != ".." && fs::is_regular_file(dir_ / name, ignored);
    if (!plain || file_digest(dir_ / name) != digest) wrong.insert(name);
  }
  return {wrong.begin(), wrong.end()};
}

}  // namespace sf::ckpt
