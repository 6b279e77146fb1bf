// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/present.h"
#include "ckpt/end_ids.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "tool/compare_values.h"
#include "tool/float8.h"
#include "tool/fused_experts.h"
#include "tool/language_part.h"
#include "tool/model_source.h"
#include "tool/names.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSideFiles[] = {"tokenizer.json",          "tokenizer_config.json", "chat_template.jinja",
                                      "special_tokens_map.json", "added_tokens.json",     "generation_config.json"};
constexpr std::string_view kFloat8 = "F8_E4M3", kScale = "_scale_inv";

bool is_float(const StoredTensor& tensor) {
  return tensor.dtype == Dtype::kF32 || tensor.dtype == Dtype::kF16 || tensor.dtype == Dtype::kBF16 ||
         tensor.dtype == Dtype::kF64;
}

// Quantised to float8 in blocks, which is undone on the way; other schemes are refused where config.json is read.
bool is_float8(const Json& config) {
  const Json* settings = config.find("quantization_config");
  return settings && settings->is_object() && settings->get_string("quant_method", "") == "fp8";
}

void drop(Json& object, std::string_view key) {
  std::erase_if(object.as_object(), [&](const Json::Member& member) { return member.first == key; });
}

// "W.weight_scale_inv" of a float8 "W.weight".
bool is_scale(const TensorSet& from, const std::string& name) {
  if (!name.ends_with(kScale)) return false;
  const StoredTensor* of = from.find(std::string_view(name).substr(0, name.size() - kScale.size()));
  return of && of->type == kFloat8;
}

// Strict: every parameter is there in its shape and type, once, and nothing else is; all that is wrong is said at once.
void check_tensors(const TensorSet& from, const arch::ModelSpec& spec) {
  NameCheck check = check_names(from, spec);
  std::erase_if(check.unexpected, [&](const std::string& name) { return is_scale(from, name); });
  std::vector<std::string> types, faults;
  for (const arch::Parameter& p : spec.parameters) {
    const StoredTensor* tensor = from.find(p.name);
    if (!tensor || is_float(*tensor)) continue;
    if (tensor->type != kFloat8)
      types.push_back(fmt::format("{} is {}", p.name, tensor->type));
    else if (!from.find(p.name + std::string(kScale)))
      check.missing.push_back(p.name + std::string(kScale));
  }
  auto say = [&](const std::vector<std::string>& names, std::string_view what) {
    if (!names.empty()) faults.push_back(fmt::format("{} {}: {}", names.size(), what, listed(names)));
  };
  say(check.missing, "tensors that config.json asks for are missing");
  say(check.misshapen, "have another shape than config.json's");
  say(types, "are of no floating type");
  say(check.unexpected, fmt::format("have no place in the {} family", spec.family));
  say(from.stray, "are duplicates, or unknown to the index");
  SF_CHECK(faults.empty(), Exit::kData, "{}: {}", from.path.string(), fmt::join(faults, "; "));
}

bool equal_bytes(const StoredTensor& a, const StoredTensor& b) {
  return a.type == b.type && a.shape == b.shape && compare_values(a, b, std::nullopt).differ == 0;
}

void check_winner(const arch::ModelSpec& spec, const std::string& winner) {
  std::vector<std::string> known;
  for (const arch::Alias& alias : spec.aliases)
    for (const std::string& name : {alias.of, alias.name}) known.push_back(name);
  SF_CHECK(winner.empty() || std::find(known.begin(), known.end(), winner) != known.end(), Exit::kUsage,
           "--tied-from {} is no tied tensor of this model; known: {}", winner,
           known.empty() ? "none, its config.json ties nothing" : listed(known));
}

// A tied model that stores both names keeps one. Equal bytes under both: no matter which. Which wins otherwise is not
// ours to guess.
void choose_tied(TensorSet& from, const arch::ModelSpec& spec, const std::string& winner) {
  for (const arch::Alias& alias : spec.aliases) {
    const StoredTensor *dropped = from.stored(alias.name), *kept = from.stored(alias.of);
    if (!dropped || !kept || equal_bytes(*dropped, *kept)) continue;
    SF_CHECK(winner == alias.name || winner == alias.of, Exit::kData,
             "{}: config.json ties \"{}\" to \"{}\", but their bytes differ; say which counts with --tied-from",
             from.path.string(), alias.name, alias.of);
    if (winner == alias.of) continue;
    StoredTensor chosen = *dropped;
    chosen.name = alias.of;
    *std::find_if(from.tensors.begin(), from.tensors.end(), [&](const auto& t) { return t.name == alias.of; }) = chosen;
  }
}

Float8 float8_of(const TensorSet& from, const StoredTensor& weight) {
  Float8 out{weight, *from.find(weight.name + std::string(kScale))};
  const Json* settings = from.config.find("quantization_config");
  if (const Json* block = settings ? settings->find("weight_block_size") : nullptr; block && block->is_array()) {
    const Json::Array& sizes = block->as_array();
    SF_CHECK(sizes.size() == 2 && sizes[0].as_int() > 0 && sizes[1].as_int() > 0, Exit::kConfig,
             "config.json: weight_block_size {} is not two extents", block->dump());
    out.block_rows = sizes[0].as_int();
    out.block_columns = sizes[1].as_int();
  }
  check_float8(out);
  return out;
}

// One bounce buffer on the way: bytes that stay as they are may be copied by the kernel.
void write_converted(const StoredTensor& tensor, Dtype as, const ckpt::TensorSource::Sink& sink) {
  if (tensor.dtype == as) return tensor.stream(sink);
  std::vector<std::byte> out;
  tensor.stream([&](const ckpt::Piece& piece) {
    out.resize(piece.bytes.size() / size_of(*tensor.dtype) * size_of(as));
    convert(piece.bytes, *tensor.dtype, out, as);
    sink(out);
  });
}

// As it will be stored: float8 becomes BF16 unless another type is asked for.
void add_tensor(const TensorSet& from, const arch::Parameter& p, std::optional<Dtype> dtype, ModelSource& source) {
  StoredTensor tensor = *from.find(p.name);
  source.bytes_to_read += tensor.bytes;
  if (tensor.type == kFloat8) {
    Float8 quantised = float8_of(from, tensor);
    source.bytes_to_read += quantised.scale.bytes;
    Dtype as = dtype.value_or(Dtype::kBF16);
    return source.tensors.push_back(
        {p.name, as, p.shape, [quantised, as](const auto& sink) { dequantise(quantised, as, sink); }});
  }
  source.tensors.push_back(converted(tensor, p.name, dtype.value_or(*tensor.dtype)));
}

// Every read of a tensor, counted.
void count_reads(TensorSet& from, const std::shared_ptr<uint64_t>& total) {
  for (StoredTensor& tensor : from.tensors) {
    tensor.read = [read = std::move(tensor.read), total](uint64_t offset, std::span<std::byte> to) {
      read(offset, to);
      *total += to.size();
    };
    if (!tensor.all) continue;
    tensor.all = [all = std::move(tensor.all), total](const ckpt::TensorSource::Sink& sink) {
      all([&](const ckpt::Piece& piece) {
        *total += piece.bytes.size();
        sink(piece);
      });
    };
  }
}

void note_aside(const std::vector<std::string>& names, ModelSource& source) {
  if (!names.empty())
    source.notes.push_back(fmt::format("{} tensors are not used, they belong to no layer of the language model: {}",
                                       names.size(), listed(names)));
}

void copy_files(const fs::path& from, const Json& config, const fs::path& to) {
  copy_side_files(from, to);
  std::error_code ignored;
  if (fs::exists(to / "generation_config.json", ignored)) return;
  Json generation = Json::object();
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (const Json* id = config.find(key)) generation.set(key, *id);
  write_unsynced(to / "generation_config.json", generation.dump(2) + "\n");
}

// They are copied as they are; one that nobody could read would be found out only at the first row.
void check_side_files(const fs::path& dir) {
  for (std::string_view name : kSideFiles) {
    fs::path file = dir / name;
    if (!name.ends_with(".json") || !is_present(file)) continue;
    Json json = Json::parse(read_file(file), file.string());
    SF_CHECK(json.is_object(), Exit::kData, "{}: wanted an object, found {}", file.string(), json.type_name());
  }
}

}  // namespace

void write_unsynced(const fs::path& path, std::string_view text) {
  UniqueFd fd = create_file(path);
  write_all(fd.get(), text, path);
  fd.close(path.string());
}

void copy_side_files(const fs::path& from, const fs::path& to) {
  for (const char* name : kSideFiles)
    if (is_present(from / name)) write_unsynced(to / name, read_file(from / name));
}

ckpt::TensorSource converted(const StoredTensor& tensor, const std::string& name, Dtype as) {
  SF_CHECK(is_float(tensor), Exit::kData, "tensor \"{}\" is {}, wanted a floating type", tensor.name, tensor.type);
  return {name, as, tensor.shape, [tensor, as](const auto& sink) { write_converted(tensor, as, sink); }};
}

ModelSource source_from_directory(const fs::path& given, std::optional<Dtype> dtype, const std::string& tied_from) {
  TensorSet from = open_published(given);
  const fs::path dir = from.words;
  SF_CHECK(is_present(dir / "tokenizer.json"), Exit::kNoInput,
           "{} has no tokenizer.json; save it from the model's fast tokenizer into that directory", dir.string());
  text::Tokenizer::open(dir / "tokenizer.json");  // a stage that we cannot run is refused now, not at the first row
  check_side_files(dir);
  ModelSource source;
  source.format = from.kind == "verl" ? "verl" : "huggingface";
  if (from.kind == "verl")
    source.notes.push_back("weights only: optimizer state and place in the data of verl's run are not taken");
  Json config = arch::text_config(from.config);
  if (is_float8(config)) drop(config, "quantization_config");
  try {
    source.decoder = arch::decoder_from_config(config);
  } catch (Error& error) {
    error.add_context(dir.string());
    throw;
  }
  ckpt::end_ids_of(dir, source.decoder);  // refuses one that is no token
  source.spec = arch::describe(source.decoder);
  check_winner(source.spec, tied_from);
  if (!source.decoder.delta.layers.empty()) note_aside(take_language_part(from), source);
  fuse_experts(from, source.spec);
  check_tensors(from, source.spec);
  note_assumed(arch::assumed(config, source.decoder), source);
  judge_template(text::chat_template_fault(dir), source);
  choose_tied(from, source.spec, tied_from);
  source.bytes_read = std::make_shared<uint64_t>(0);
  count_reads(from, source.bytes_read);
  for (const arch::Parameter& p : source.spec.parameters) add_tensor(from, p, dtype, source);
  source.decoder.stored = source.tensors.front().dtype;
  source.config = config;  // keys that we do not read are kept
  const Json ours = arch::decoder_to_config(source.decoder);
  for (const auto& [key, value] : ours.as_object()) source.config.set(key, value);
  source.provenance = Json::object()
                          .set("format", source.format)
                          .set("name", fs::absolute(given).lexically_normal().filename().string());
  source.write_files = [dir, config = source.config](const fs::path& to) { copy_files(dir, config, to); };
  return source;
}

}  // namespace sf::tool
