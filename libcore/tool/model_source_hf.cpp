// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer.h"
#include "tool/model_source.h"
#include "tool/names.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kPiece = int64_t{1} << 22;  // elements converted at once
constexpr const char* kSideFiles[] = {"tokenizer.json",          "tokenizer_config.json", "chat_template.jinja",
                                      "special_tokens_map.json", "added_tokens.json",     "generation_config.json"};

bool is_float(Dtype type) {
  return type == Dtype::kF32 || type == Dtype::kF16 || type == Dtype::kBF16 || type == Dtype::kF64;
}

// Strict: every parameter is there in its shape, and nothing else is.
void check_tensors(const ckpt::Checkpoint& from, const arch::ModelSpec& spec) {
  NameCheck check = check_names(from, spec);
  std::string where = from.dir().string();
  SF_CHECK(check.missing.empty(), Exit::kData, "{}: {} tensors that config.json asks for are missing: {}", where,
           check.missing.size(), listed(check.missing));
  SF_CHECK(check.misshapen.empty(), Exit::kData, "{}: shapes differ from config.json's: {}", where,
           listed(check.misshapen));
  SF_CHECK(check.unexpected.empty(), Exit::kData, "{}: {} tensors have no place in the {} family: {}", where,
           check.unexpected.size(), spec.family, listed(check.unexpected));
  for (const arch::Parameter& p : spec.parameters) {
    Dtype type = from.info(p.name).dtype;
    SF_CHECK(is_float(type), Exit::kData, "{}: tensor \"{}\" is {}, wanted a floating type", where, p.name,
             name_of(type));
  }
}

// A tied model that stores both names: one is dropped, which is worth saying if their bytes differ.
void note_tied_duplicates(const ckpt::Checkpoint& from, const arch::ModelSpec& spec, std::vector<std::string>& notes) {
  std::vector<std::string> stored = from.names();
  for (const arch::Alias& alias : spec.aliases) {
    auto has = [&](const std::string& name) { return std::binary_search(stored.begin(), stored.end(), name); };
    if (!has(alias.name) || !has(alias.of)) continue;
    TensorView dropped = from.stored(alias.name), kept = from.stored(alias.of);
    if (dropped.dtype != kept.dtype || dropped.shape != kept.shape ||
        std::memcmp(dropped.data, kept.data, kept.bytes()) != 0)
      notes.push_back(fmt::format("config.json ties \"{}\" to \"{}\" but their bytes differ; the latter is used",
                                  alias.name, alias.of));
  }
}

ckpt::TensorSource converted(std::shared_ptr<const ckpt::Checkpoint> from, const arch::Parameter& p, Dtype as) {
  auto write = [from, name = p.name, count = numel(p.shape), as](const ckpt::TensorSource::Sink& sink) {
    TensorView whole = from->view(name);
    if (whole.dtype == as) return sink(whole.span());
    std::vector<std::byte> piece;
    for (int64_t lo = 0; lo < count; lo += kPiece) {
      int64_t hi = std::min(count, lo + kPiece);
      piece.resize(static_cast<size_t>(hi - lo) * size_of(as));
      from->read(name, lo, hi, as, piece);
      sink(piece);
    }
  };
  return {p.name, as, p.shape, write};
}

void copy_files(const fs::path& from, const Json& config, const fs::path& to) {
  std::error_code ignored;
  for (const char* name : kSideFiles)
    if (fs::exists(from / name, ignored)) write_atomic(to / name, read_file(from / name));
  if (fs::exists(to / "generation_config.json", ignored)) return;
  Json generation = Json::object();
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (const Json* id = config.find(key)) generation.set(key, *id);
  write_atomic(to / "generation_config.json", generation.dump(2) + "\n");
}

// They are copied as they are; one that nobody could read would be found out only at the first row.
void check_side_files(const fs::path& dir) {
  std::error_code ignored;
  for (std::string_view name : kSideFiles) {
    fs::path file = dir / name;
    if (!name.ends_with(".json") || !fs::exists(file, ignored)) continue;
    Json json = Json::parse(read_file(file), file.string());
    SF_CHECK(json.is_object(), Exit::kData, "{}: wanted an object, found {}", file.string(), json.type_name());
  }
}

}  // namespace

ModelSource source_from_directory(const fs::path& dir, std::optional<Dtype> dtype) {
  auto from = std::make_shared<const ckpt::Checkpoint>(ckpt::Checkpoint::open(dir));
  std::error_code ignored;
  SF_CHECK(fs::exists(dir / "tokenizer.json", ignored), Exit::kNoInput,
           "{} has no tokenizer.json; save it from the model's fast tokenizer into that directory", dir.string());
  text::Tokenizer::open(dir / "tokenizer.json");  // a stage that we cannot run is refused now, not at the first row
  check_side_files(dir);
  ModelSource source;
  source.format = "huggingface";
  try {
    source.decoder = arch::decoder_from_config(from->config());
  } catch (Error& error) {
    error.add_context(dir.string());
    throw;
  }
  source.spec = arch::describe(source.decoder);
  check_tensors(*from, source.spec);
  note_tied_duplicates(*from, source.spec, source.notes);
  for (const arch::Parameter& p : source.spec.parameters)
    source.tensors.push_back(converted(from, p, dtype.value_or(from->info(p.name).dtype)));
  source.decoder.stored = source.tensors.front().dtype;
  source.config = from->config();  // keys that we do not read are kept
  const Json ours = arch::decoder_to_config(source.decoder);
  for (const auto& [key, value] : ours.as_object()) source.config.set(key, value);
  source.provenance =
      Json::object().set("format", source.format).set("name", fs::absolute(dir).lexically_normal().filename().string());
  source.write_files = [dir, config = source.config](const fs::path& to) { copy_files(dir, config, to); };
  return source;
}

}  // namespace sf::tool
