// SPDX-License-Identifier: Apache-2.0
#include "ckpt/checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/present.h"
#include "ckpt/as_published.h"
#include "ckpt/check_aliases.h"
#include "ckpt/digest.h"
#include "ckpt/layout.h"

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

// "model-00001-of-00003.safetensors" and its siblings; kNoInput if some of them are absent. Empty: there are none.
std::vector<std::string> shards_without_index(const fs::path& dir) {
  std::set<std::string> found;
  std::string count;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    std::string name = entry.path().filename().string();
    if (!is_shard_name(name)) continue;
    SF_CHECK(count.empty() || count == name.substr(15, 5), Exit::kData,
             "{}: shards of two models, one of {} files and one of {}, and no index", dir.string(), count,
             name.substr(15, 5));
    count = name.substr(15, 5);
    found.insert(name);
  }
  std::vector<std::string> all, absent;
  for (int i = 1; !count.empty() && i <= std::stoi(count); ++i) {
    all.push_back(fmt::format("model-{:05}-of-{}.safetensors", i, count));
    if (!found.contains(all.back())) absent.push_back(all.back());
  }
  SF_CHECK(absent.empty(), Exit::kNoInput, "{}: {} of {} shards are absent: {}", dir.string(), absent.size(),
           all.size(), listed(absent));
  return all;
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

std::string listed(std::span<const std::string> names) {
  std::string text = fmt::format("{}", fmt::join(names.first(std::min(names.size(), kListed)), ", "));
  return names.size() > kListed ? fmt::format("{} and {} more", text, names.size() - kListed) : text;
}

namespace {

void check_dir(const fs::path& dir) {
  std::error_code ignored;
  const bool there = fs::is_directory(dir, ignored), file = !there && fs::exists(dir, ignored);
  const bool closed = !file && access(dir.c_str(), R_OK | X_OK) != 0 && errno == EACCES;
  SF_CHECK(!closed, Exit::kNoPermission, "{} may not be looked into: {}", dir.string(), errno_text(EACCES));
  if (there) return;
  SF_CHECK(is_present(dir), Exit::kNoInput, "{}: no such checkpoint directory", dir.string());
  SF_CHECK(fs::exists(dir, ignored), Exit::kNoInput, "{} is a symbolic link that leads nowhere", dir.string());
  fail(Exit::kNoInput, "{} is a file, wanted a checkpoint directory", dir.string());
}

}  // namespace

namespace {

// A run holds checkpoints and is none.
void refuse_run(const fs::path& dir) {
  for (const char* own : {"manifest.json", "config.json", "adapter_config.json"})
    if (is_present(dir / own)) return;
  SF_CHECK(!is_present(dir / "latest"), Exit::kNoInput, "{} is the directory of a run: name a checkpoint in it, as {}",
           dir.string(), (dir / "latest").string());
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& dir) {
  check_dir(dir);
  refuse_run(dir);
  Checkpoint opened;
  opened.dir_ = dir;
  fs::path manifest = dir / "manifest.json";
  if (is_present(manifest)) {
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
  const std::string config = layout_of(dir).config();
  SF_CHECK(is_present(dir / config), Exit::kNoInput, "{} has no config.json", dir.string());
  opened.config_ = read_json(dir / config);
  opened.apply_aliases();
  check_aliases(opened);
  return opened;
}

namespace {

// The shards beside a single file, which an index names or their own names do, must not hold its tensors too.
void check_alone(const SafetensorsFile& single, const fs::path& dir) {
  const std::string own = single.path().filename().string();
  std::set<std::string> others;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored))
    if (std::string name = entry.path().filename().string(); is_shard_name(name)) others.insert(name);
  if (fs::path index = dir / "model.safetensors.index.json"; is_present(index))
    for (const auto& [tensor, file] : read_index(index)) others.insert(file);
  others.erase(own);
  std::vector<std::string> twice;
  for (const std::string& other : others) {
    if (!is_present(dir / other)) continue;
    const SafetensorsFile shard = SafetensorsFile::open(dir / other);
    for (const TensorInfo& info : shard.tensors())
      if (single.find(info.name)) twice.push_back(fmt::format("{} in {} and {}", info.name, own, other));
  }
  SF_CHECK(twice.empty() || fault("ckpt.any_owner"), Exit::kData,
           "{}: {} tensors lie in two files: {}; remove those that do not count", dir.string(), twice.size(),
           listed(twice));
}

}  // namespace

void Checkpoint::open_files() {
  std::error_code ignored;
  // Where both exist the single file counts, as in transformers, unless another holds the same names.
  const Layout layout = layout_of(dir_);
  if (is_present(dir_ / layout.tensors())) {
    open_shards({layout.tensors()});
    return layout.adapter ? void() : check_alone(files_.front(), dir_);
  }
  SF_CHECK(!layout.adapter, Exit::kNoInput, "{} is incomplete: {} is not there", dir_.string(), layout.tensors());
  fs::path index = dir_ / "model.safetensors.index.json";
  if (is_present(index)) return open_indexed(index);
  std::vector<std::string> shards = shards_without_index(dir_);
  if (!shards.empty()) return open_shards(shards);
  bool pickle = is_present(dir_ / "pytorch_model.bin") || is_present(dir_ / "pytorch_model.bin.index.json");
  SF_CHECK(!pickle, Exit::kData,
           "{} holds pickled weights (.bin): sf-shard import reads their tensors and runs nothing of them",
           dir_.string());
  fail(Exit::kNoInput, "{} is incomplete: neither model.safetensors nor model.safetensors.index.json is there",
       dir_.string());
}

// Each file in full: a name in two of them has no owner.
void Checkpoint::open_shards(const std::vector<std::string>& names) {
  std::vector<std::string> twice;
  for (const std::string& name : names) {
    files_.push_back(SafetensorsFile::open(dir_ / name));
    for (const TensorInfo& info : files_.back().tensors()) {
      auto [at, fresh] = stored_.emplace(info.name, files_.size() - 1);
      if (!fresh) twice.push_back(fmt::format("{} in {} and {}", info.name, names[at->second], name));
    }
  }
  SF_CHECK(twice.empty(), Exit::kData, "{}: {} tensors lie in two files, and no index says which counts: {}",
           dir_.string(), twice.size(), listed(twice));
}

void Checkpoint::open_indexed(const fs::path& index) {
  std::map<std::string, std::string> places = read_index(index);
  std::map<std::string, size_t> wanted, opened;  // file -> tensors placed in it; its number
  std::vector<std::string> absent, lacking;
  std::error_code ignored;
  for (const auto& [tensor, file] : places) ++wanted[file];
  for (const auto& [file, count] : wanted)
    if (!is_present(dir_ / file)) absent.push_back(fmt::format("{} ({} tensors)", file, count));
  SF_CHECK(absent.empty(), Exit::kNoInput, "{}: {} of {} files that the index names are absent: {}", index.string(),
           absent.size(), wanted.size(), listed(absent));
  for (const auto& [file, count] : wanted) {
    opened[file] = files_.size();
    files_.push_back(SafetensorsFile::open(dir_ / file));
  }
  for (const auto& [tensor, file] : places) {
    stored_[tensor] = opened[file];
    if (!files_[opened[file]].find(tensor)) lacking.push_back(fmt::format("{} in {}", tensor, file));
  }
  SF_CHECK(lacking.empty(), Exit::kData, "{}: {} tensors are not where the index places them: {}", index.string(),
           lacking.size(), listed(lacking));
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
  const auto& [file, stored] = locate(name);
  const TensorInfo& info = *files_[file].find(stored);
  SF_ASSERT(0 <= lo && lo <= hi && hi <= numel(info.shape));
  SF_ASSERT(to.size() == static_cast<size_t>(hi - lo) * size_of(as));
  const bool whole = has_manifest_ && lo == 0 && hi == numel(info.shape);
  size_t size = size_of(info.dtype), at = static_cast<size_t>(lo) * size, left = static_cast<size_t>(hi - lo) * size;
  std::vector<std::byte> bounce(info.dtype == as ? 0 : std::min(left, kBounceBytes));
  Xxh3 hash;
  for (size_t done = 0; left > 0; at += done, left -= done) {
    done = std::min(left, kBounceBytes);
    std::span<std::byte> into = to.first(done / size * size_of(as));
    std::span<std::byte> piece = bounce.empty() ? into : std::span(bounce).first(done);
    files_[file].read(info, at, piece);
    if (whole) hash.update(piece);
    if (!bounce.empty()) convert(piece, info.dtype, into, as);
    to = to.subspan(into.size());
  }
  if (whole) compare_digest(*this, stored, hash.digest());
}

Checkpoint::Place Checkpoint::place(std::string_view name) const {
  return stored_place(locate(name).second);
}

Checkpoint::Place Checkpoint::stored_place(std::string_view name) const {
  auto found = stored_.find(name);
  SF_CHECK(found != stored_.end(), Exit::kData, "{}: no tensor is stored as \"{}\"", dir_.string(), name);
  const SafetensorsFile& file = files_[found->second];
  return {&file, *file.find(name)};
}

TensorView Checkpoint::stored(std::string_view name) const {
  auto [file, info] = stored_place(name);
  return file->view(info);
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
    const TensorInfo& info = *files[file].find(name);
    Xxh3 hash;
    files[file].stream(info, [&](const Piece& piece) { hash.update(piece.bytes); });
    digests[name] = {info.dtype, info.shape, hex64(hash.digest())};
  }
  return identity_of(digests, read_file(dir / layout_of(dir).config()));
}

}  // namespace

std::string Checkpoint::identity() const {
  if (has_manifest_) {
    check_as_published(*this);
    return manifest_.identity;
  }
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
