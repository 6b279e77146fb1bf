// SPDX-License-Identifier: Apache-2.0
#include "tool/tensor_set.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/present.h"
#include "ckpt/as_published.h"
#include "ckpt/gguf.h"
#include "ckpt/torch_file.h"
#include "tool/model_source.h"
#include "tool/verl_files.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

StoredTensor stored(std::shared_ptr<const ckpt::SafetensorsFile> file, const ckpt::TensorInfo& info) {
  bool plain = dtype_from_name(info.type).has_value();
  return {info.name,
          file->path().filename().string(),
          std::string(info.type),
          plain ? std::optional(info.dtype) : std::nullopt,
          info.shape,
          info.bytes(),
          [file, info](uint64_t offset, std::span<std::byte> to) { file->read(info, offset, to); },
          [file, info](const ckpt::TensorSource::Sink& sink) { file->stream(info, sink); }};
}

void add_file(const ckpt::SafetensorsFile& opened, TensorSet& set) {
  auto file = std::make_shared<const ckpt::SafetensorsFile>(opened);
  for (const ckpt::TensorInfo& info : file->tensors()) set.tensors.push_back(stored(file, info));
}

void add_directory(const fs::path& dir, TensorSet& set) {
  set.checkpoint = ckpt::Checkpoint::open(dir);
  const ckpt::Checkpoint& open = *set.checkpoint;
  set.kind = open.has_manifest() ? "checkpoint" : "huggingface";
  std::map<fs::path, std::shared_ptr<const ckpt::SafetensorsFile>> files;
  for (const ckpt::SafetensorsFile& file : open.files())
    files[file.path()] = std::make_shared<const ckpt::SafetensorsFile>(file);
  for (const std::string& name : open.names()) {
    auto [file, info] = open.stored_place(name);
    set.tensors.push_back(stored(files.at(file->path()), info));
  }
  for (const ckpt::SafetensorsFile& file : open.files())
    for (const ckpt::TensorInfo& info : file.tensors()) {
      const StoredTensor* known = set.stored(info.name);
      std::string name = file.path().filename().string();
      if (!known || known->file != name) set.stray.push_back(fmt::format("{} in {}", info.name, name));
    }
  set.config = open.config();
  for (const arch::Alias& alias : open.aliases()) set.aliases[alias.name] = alias.of;
  set.digests = open.manifest().digests;
  // A run's moments lie beside the model: they are as much of what was published.
  std::error_code ignored;
  if (fs::path moments = dir / "optimizer.safetensors"; open.has_manifest() && is_present(moments))
    add_file(ckpt::SafetensorsFile::open(moments), set);
}

void add_gguf(const fs::path& path, TensorSet& set) {
  auto file = std::make_shared<const ckpt::GgufFile>(ckpt::GgufFile::open(path));
  set.kind = "gguf";
  set.metadata = Json::object();
  for (const auto& [key, value] : file->metadata().as_object())
    if (!value.is_array()) set.metadata.set(key, value);  // vocabularies are not for reading
  for (const ckpt::GgufTensor& tensor : file->tensors())
    set.tensors.push_back({tensor.name, path.filename().string(),
                           ckpt::gguf_type_name(static_cast<uint32_t>(tensor.type)), std::nullopt, tensor.shape,
                           tensor.bytes, [file, begin = tensor.begin](uint64_t offset, std::span<std::byte> to) {
                             pread_exact(open_read(file->path()).get(), to, begin + offset, file->path());
                           }});
}

void add_torch(const fs::path& path, TensorSet& set) {
  auto file = std::make_shared<const ckpt::TorchFile>(ckpt::TorchFile::open(path));
  for (const ckpt::TorchTensor& tensor : file->tensors())
    set.tensors.push_back(
        {tensor.name,
         path.filename().string(),
         std::string(tensor.type),
         tensor.dtype,
         tensor.shape,
         tensor.bytes(),
         [file, &tensor](uint64_t offset, std::span<std::byte> to) { file->read(tensor, offset, to); },
         {}});
  set.kind = "torch";
  for (const auto& [key, value] : file->values().as_object()) set.metadata.set(key, value);
}

// pytorch_model.bin, or the files its index names.
void add_torch_directory(const fs::path& dir, TensorSet& set) {
  std::set<std::string> files{"pytorch_model.bin"};
  std::error_code ignored;
  if (fs::path index = dir / "pytorch_model.bin.index.json"; !is_present(dir / "pytorch_model.bin")) {
    files.clear();
    Json json = Json::parse(read_file(index), index.string());
    for (const auto& [tensor, file] : json.at("weight_map").as_object()) {
      SF_CHECK(file.as_string().find('/') == std::string::npos && file.as_string() != "..", Exit::kData,
               "{}: \"{}\" is not a plain file name", index.string(), file.as_string());
      files.insert(file.as_string());
    }
  }
  for (const std::string& file : files) add_torch(dir / file, set);
}

void add_config(TensorSet& set) {
  set.config = Json::parse(read_file(set.words / "config.json"), (set.words / "config.json").string());
  if (set.config.get_bool("tie_word_embeddings", false)) set.aliases["lm_head.weight"] = "model.embed_tokens.weight";
}

bool has_pickled_weights_only(const fs::path& dir) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored))
    if (entry.path().extension() == ".safetensors") return false;
  return is_present(dir / "pytorch_model.bin") || is_present(dir / "pytorch_model.bin.index.json");
}

// A converted tensor is made in order: whoever reads it gets it whole, once.
StoredTensor made(const ckpt::TensorSource& source, const std::string& file) {
  auto values = std::make_shared<std::vector<std::byte>>();
  auto read = [values, source](uint64_t offset, std::span<std::byte> to) {
    if (offset == 0) {
      values->clear();
      source.write(
          [&](const ckpt::Piece& piece) { values->insert(values->end(), piece.bytes.begin(), piece.bytes.end()); });
    }
    SF_ASSERT(offset + to.size() <= values->size());
    std::memcpy(to.data(), values->data() + offset, to.size());
    if (offset + to.size() == values->size()) *values = {};
  };
  return {source.name, file, std::string(name_of(source.dtype)), source.dtype, source.shape, source.bytes(), read, {}};
}

std::function<void(const ckpt::TensorSource::Sink&)> as_published(const StoredTensor& tensor, std::string digest,
                                                                  std::string dir) {
  return [tensor, digest, dir](const ckpt::TensorSource::Sink& sink) {
    Xxh3 hash;
    tensor.stream([&](const ckpt::Piece& piece) {
      hash.update(piece.bytes);
      sink(piece);
    });
    SF_CHECK(hex64(hash.digest()) == digest, Exit::kData,
             "{}: the bytes of tensor {} are not those that were published; sf-shard verify looks at all", dir,
             tensor.name);
  };
}

void sort(TensorSet& set) {
  std::sort(set.tensors.begin(), set.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
}

}  // namespace

const StoredTensor* TensorSet::find(std::string_view name) const {
  auto alias = aliases.find(std::string(name));
  return stored(alias == aliases.end() ? name : std::string_view(alias->second));
}

void StoredTensor::stream(const ckpt::TensorSource::Sink& sink) const {
  if (all) return all(sink);
  std::vector<std::byte> buffer(std::min<uint64_t>(bytes, ckpt::kBounceBytes));
  for (uint64_t at = 0; at < bytes; at += buffer.size()) {
    std::span<std::byte> part(buffer.data(), std::min<uint64_t>(buffer.size(), bytes - at));
    read(at, part);
    sink(std::span<const std::byte>(part));
  }
}

const StoredTensor* TensorSet::stored(std::string_view name) const {
  auto found = std::lower_bound(tensors.begin(), tensors.end(), name,
                                [](const StoredTensor& t, std::string_view wanted) { return t.name < wanted; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

TensorSet open_tensors(const fs::path& path) {
  std::error_code ignored;
  SF_CHECK(fs::exists(path, ignored), Exit::kNoInput, "{}: no such file or directory", path.string());
  TensorSet set;
  set.path = path;
  if (fs::is_directory(path, ignored)) {
    set.words = path;
    if (std::optional<fs::path> shards = verl_shards_in(path)) {
      set.kind = "verl";
      set.words = *shards / "huggingface";
      add_verl(*shards, set);
      add_config(set);
    } else if (has_pickled_weights_only(path)) {
      add_torch_directory(path, set);
      add_config(set);
    } else {
      add_directory(path, set);
    }
  } else if (ckpt::GgufFile::is_gguf(path)) {
    add_gguf(path, set);
  } else if (ckpt::TorchFile::is_zip(path)) {
    add_torch(path, set);
  } else {
    ckpt::SafetensorsFile file = ckpt::SafetensorsFile::open(path);
    set.kind = "safetensors";
    set.metadata = Json::object();
    for (const auto& [key, value] : file.metadata()) set.metadata.set(key, value);
    add_file(file, set);
  }
  sort(set);
  return set;
}

TensorSet open_published(const fs::path& path) {
  TensorSet set = open_tensors(path);
  if (!set.checkpoint || fault("tool.take_changed")) return set;
  ckpt::check_as_published(*set.checkpoint);
  for (StoredTensor& tensor : set.tensors)
    if (auto digest = set.digests.find(tensor.name); digest != set.digests.end())
      tensor.all = as_published(tensor, digest->second, path.string());
  return set;
}

TensorSet open_model(const fs::path& path) {
  if (!ckpt::GgufFile::is_gguf(path)) return open_tensors(path);
  TensorSet set;
  set.path = path;
  set.kind = "gguf";
  ModelSource source = source_from_gguf(path, std::nullopt);
  for (const ckpt::TensorSource& tensor : source.tensors) set.tensors.push_back(made(tensor, path.filename().string()));
  for (const arch::Alias& alias : source.spec.aliases) set.aliases[alias.name] = alias.of;
  sort(set);
  return set;
}

std::string digest_of(const StoredTensor& tensor) {
  Xxh3 hash;
  tensor.stream([&](const ckpt::Piece& piece) { hash.update(piece.bytes); });
  return hex64(hash.digest());
}

}  // namespace sf::tool
