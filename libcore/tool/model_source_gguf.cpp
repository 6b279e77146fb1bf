// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "ckpt/gguf.h"
#include "text/chat.h"
#include "text/gguf_tokenizer.h"
#include "tool/model_source.h"
#include "tool/names.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

// Reads the keys of the one architecture that is known, each by its full name in messages.
class Keys {
 public:
  explicit Keys(const Json& metadata) : metadata_(metadata) {}
  const Json* find(const char* key) const { return metadata_.find(key); }
  int64_t integer(const char* key) const { return metadata_.at(key).as_int(); }
  int64_t integer(const char* key, int64_t otherwise) const { return metadata_.get_int(key, otherwise); }
  std::string text(const char* key) const { return metadata_.get_string(key, ""); }
  // Files hold fp32: six significant digits give back what the author wrote (1e-05, not 9.999999747378752e-06).
  double real(const char* key) const { return rounded(metadata_.at(key).as_double()); }
  double real(const char* key, double otherwise) const { return rounded(metadata_.get_double(key, otherwise)); }

 private:
  static double rounded(double value) { return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr); }
  const Json& metadata_;
};

Json rope_scaling(const Keys& keys, const ckpt::GgufFile& file) {
  SF_CHECK(
      !file.find("rope_freqs.weight"), Exit::kConfig,
      "tensor rope_freqs.weight: frequency factors baked into the file are not supported; convert from the original "
      "Hugging Face directory, whose config.json names the scaling");
  std::string type = keys.text("llama.rope.scaling.type");
  if (type.empty() || type == "none") return {};
  SF_CHECK(type == "linear" || type == "yarn", Exit::kConfig,
           "llama.rope.scaling.type = \"{}\" is unknown; known: none, linear, yarn", type);
  Json scaling = Json::object();
  scaling.set("rope_type", type).set("factor", keys.real("llama.rope.scaling.factor"));
  if (int64_t original = keys.integer("llama.rope.scaling.original_context_length", 0); original > 0)
    scaling.set("original_max_position_embeddings", original);
  return scaling;
}

Json end_tokens(const Keys& keys) {
  Json ids;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    const Json* id = keys.find(key);
    if (!id) continue;
    if (ids.is_null())
      ids = *id;
    else if (ids.as_int() != id->as_int())
      ids = Json(Json::Array{ids, *id});
  }
  return ids;
}

// A tensor's own, which files mix: matrices of F16 beside norms of F32. Of a quantised one what its values are in.
Dtype stored_type(const ckpt::GgufTensor& tensor) {
  if (tensor.type == ckpt::GgufType::kF16) return Dtype::kF16;
  if (tensor.type == ckpt::GgufType::kBF16) return Dtype::kBF16;
  return Dtype::kF32;
}

// The config.json that the metadata amounts to; decoder_from_config checks its ranges.
Json config_of(const ckpt::GgufFile& file, const ckpt::GgufTensor& embedding) {
  Keys keys(file.metadata());
  Json config = Json::object();
  config.set("architectures", Json(Json::Array{Json("LlamaForCausalLM")})).set("model_type", "llama");
  config.set("vocab_size", embedding.shape.at(0));
  config.set("hidden_size", keys.integer("llama.embedding_length"));
  config.set("intermediate_size", keys.integer("llama.feed_forward_length"));
  config.set("num_hidden_layers", keys.integer("llama.block_count"));
  int64_t heads = keys.integer("llama.attention.head_count");
  config.set("num_attention_heads", heads);
  config.set("num_key_value_heads", keys.integer("llama.attention.head_count_kv", heads));
  if (keys.find("llama.attention.key_length")) config.set("head_dim", keys.integer("llama.attention.key_length"));
  config.set("max_position_embeddings", keys.integer("llama.context_length"));
  config.set("rms_norm_eps", keys.real("llama.attention.layer_norm_rms_epsilon"));
  config.set("rope_theta", keys.real("llama.rope.freq_base", 10000)).set("rope_scaling", rope_scaling(keys, file));
  config.set("tie_word_embeddings", file.find("output.weight") == nullptr);
  const Json* bos = keys.find("tokenizer.ggml.bos_token_id");
  config.set("bos_token_id", bos ? *bos : Json());
  config.set("eos_token_id", end_tokens(keys));
  return config;
}

// Optional keys of the format that the file leaves out, each with the value it stands for.
std::vector<std::string> left_out(const Json& metadata, const arch::Decoder& d) {
  std::vector<std::string> list;
  auto add = [&](const char* key, auto value) {
    if (!metadata.contains(key)) list.push_back(fmt::format("{} = {}", key, value));
  };
  add("llama.attention.head_count_kv", d.kv_heads);
  add("llama.attention.key_length", d.head_dim);
  add("llama.rope.freq_base", d.rope.theta);
  return list;
}

void check_metadata(const ckpt::GgufFile& file, const arch::Decoder& d) {
  Keys keys(file.metadata());
  int64_t vocab = keys.integer("llama.vocab_size", d.vocab);
  SF_CHECK(vocab == d.vocab, Exit::kData, "llama.vocab_size = {}, but token_embd.weight has {} rows", vocab, d.vocab);
  int64_t rotary = keys.integer("llama.rope.dimension_count", d.head_dim);
  SF_CHECK(rotary == d.head_dim, Exit::kConfig,
           "llama.rope.dimension_count = {} of heads of {}: partial rotation is not supported", rotary, d.head_dim);
  int64_t experts = keys.integer("llama.expert_count", 0);
  SF_CHECK(experts == 0, Exit::kConfig, "llama.expert_count = {}: mixtures of experts are not supported", experts);
}

// "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight"
std::string gguf_name(const std::string& name) {
  static const std::map<std::string, std::string> kWhole = {{"model.embed_tokens.weight", "token_embd.weight"},
                                                            {"model.norm.weight", "output_norm.weight"},
                                                            {"lm_head.weight", "output.weight"}};
  static const std::map<std::string, std::string> kInLayer = {
      {"input_layernorm", "attn_norm"}, {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},   {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},    {"mlp.up_proj", "ffn_up"},           {"mlp.down_proj", "ffn_down"}};
  auto whole = kWhole.find(name);
  if (whole != kWhole.end()) return whole->second;
  constexpr std::string_view kLayers = "model.layers.";
  size_t dot = name.find('.', kLayers.size()), last = name.rfind('.');
  return fmt::format("blk.{}.{}{}", name.substr(kLayers.size(), dot - kLayers.size()),
                     kInLayer.at(name.substr(dot + 1, last - dot - 1)), name.substr(last));
}

// Heads whose rows llama.cpp stores for interleaved rotary pairs; 0 for other tensors.
int64_t interleaved_heads(const std::string& name, const arch::Decoder& d) {
  if (fault("tool.wrong_rows")) return 0;
  if (name.ends_with("self_attn.q_proj.weight")) return d.heads;
  if (name.ends_with("self_attn.k_proj.weight")) return d.kv_heads;
  return 0;
}

// Where row `row` of the half-split order lies in the file: [heads, head_dim/2, 2] seen as [heads, 2, head_dim/2].
int64_t row_in_file(int64_t row, int64_t head_dim) {
  int64_t head = row / head_dim, within = row % head_dim, half = head_dim / 2;
  return head * head_dim + within % half * 2 + within / half;
}

ckpt::TensorSource dequantised(std::shared_ptr<const ckpt::GgufFile> file, const arch::Parameter& p,
                               const ckpt::GgufTensor& tensor, int64_t heads, Dtype as,
                               std::shared_ptr<uint64_t> read) {
  auto write = [file, &tensor, heads, as, read,
                rows = p.shape.size() == 2 ? p.shape[0] : 1](const ckpt::TensorSource::Sink& sink) {
    auto width = static_cast<uint64_t>(numel(tensor.shape) / rows);
    int64_t at_once = std::max<int64_t>(1, static_cast<int64_t>(ckpt::kBounceBytes / (sizeof(float) * width)));
    std::vector<float> values;
    std::vector<std::byte> piece;
    for (int64_t lo = 0; lo < rows; lo += at_once) {
      int64_t hi = std::min(rows, lo + at_once);
      values.resize(static_cast<size_t>(hi - lo) * width);
      if (!heads) file->read(tensor, static_cast<uint64_t>(lo) * width, values);
      for (int64_t row = lo; heads && row < hi; ++row)
        file->read(tensor, static_cast<uint64_t>(row_in_file(row, rows / heads)) * width,
                   std::span(values).subspan(static_cast<size_t>(row - lo) * width, width));
      piece.resize(values.size() * size_of(as));
      convert(std::as_bytes(std::span(values)), Dtype::kF32, piece, as);
      *read += values.size() * tensor.bytes / static_cast<uint64_t>(numel(tensor.shape));
      sink(piece);
    }
  };
  return {p.name, as, p.shape, write};
}

void add_tensors(std::shared_ptr<const ckpt::GgufFile> file, std::optional<Dtype> as, ModelSource& source) {
  std::vector<std::string> missing, unexpected;
  std::set<std::string> used;
  source.bytes_read = std::make_shared<uint64_t>(0);
  for (const arch::Parameter& p : source.spec.parameters) {
    std::string name = gguf_name(p.name);
    used.insert(name);
    const ckpt::GgufTensor* tensor = file->find(name);
    if (!tensor) {
      missing.push_back(name);
      continue;
    }
    SF_CHECK(tensor->shape == p.shape, Exit::kData, "tensor \"{}\" has shape {}, the metadata wants {}", name,
             to_string(tensor->shape), to_string(p.shape));
    source.bytes_to_read += tensor->bytes;
    source.tensors.push_back(dequantised(file, p, *tensor, interleaved_heads(p.name, source.decoder),
                                         as.value_or(stored_type(*tensor)), source.bytes_read));
  }
  for (const ckpt::GgufTensor& tensor : file->tensors())
    if (!used.contains(tensor.name)) unexpected.push_back(tensor.name);
  SF_CHECK(missing.empty(), Exit::kData, "{} tensors are missing: {}", missing.size(), listed(missing));
  SF_CHECK(unexpected.empty(), Exit::kData, "{} tensors have no place in the llama architecture: {}", unexpected.size(),
           listed(unexpected));
}

std::vector<std::string> strings(const Json& metadata, const char* key) {
  std::vector<std::string> out;
  for (const Json& item : metadata.at(key).as_array()) out.push_back(item.as_string());
  return out;
}

text::GgufTokenizer tokenizer_of(const Json& metadata) {
  Keys keys(metadata);
  text::GgufTokenizer t;
  t.model = metadata.at("tokenizer.ggml.model").as_string();
  t.pre = keys.text("tokenizer.ggml.pre");
  t.tokens = strings(metadata, "tokenizer.ggml.tokens");
  if (const Json* types = keys.find("tokenizer.ggml.token_type"))
    for (const Json& type : types->as_array()) t.token_types.push_back(static_cast<int32_t>(type.as_int()));
  SF_CHECK(keys.find("tokenizer.ggml.merges"), Exit::kData,
           "tokenizer.ggml.merges is missing: byte-level BPE joins nothing without them");
  t.merges = strings(metadata, "tokenizer.ggml.merges");
  t.bos = keys.integer("tokenizer.ggml.bos_token_id", -1);
  t.eos = keys.integer("tokenizer.ggml.eos_token_id", -1);
  t.unknown = keys.integer("tokenizer.ggml.unknown_token_id", -1);
  t.padding = keys.integer("tokenizer.ggml.padding_token_id", -1);
  t.add_bos = metadata.get_bool("tokenizer.ggml.add_bos_token", false);
  t.add_space_prefix = metadata.get_bool("tokenizer.ggml.add_space_prefix", false);
  t.chat_template = keys.text("tokenizer.chat_template");
  return t;
}

Json generation_config(const Json& config, int64_t padding) {
  Json generation = Json::object();
  generation.set("bos_token_id", config.at("bos_token_id")).set("eos_token_id", config.at("eos_token_id"));
  if (padding >= 0) generation.set("pad_token_id", padding);
  return generation;
}

Json provenance_of(const ckpt::GgufFile& file) {
  Json out = Json::object();
  out.set("format", "gguf").set("name", file.path().filename().string());
  for (const char* key : {"general.name", "general.license"})
    if (const Json* value = file.metadata().find(key)) out.set(key, *value);
  return out;
}

void fill(std::shared_ptr<const ckpt::GgufFile> file, std::optional<Dtype> dtype, ModelSource& source) {
  const Json& metadata = file->metadata();
  std::string architecture = metadata.get_string("general.architecture", "");
  SF_CHECK(architecture == "llama", Exit::kConfig, "general.architecture \"{}\" is unknown; known: llama",
           architecture);
  const ckpt::GgufTensor* embedding = file->find("token_embd.weight");
  SF_CHECK(embedding && embedding->shape.size() == 2, Exit::kData,
           "tensor \"token_embd.weight\" is missing or no matrix");
  Json config = config_of(*file, *embedding);
  source.decoder = arch::decoder_from_config(config);
  check_metadata(*file, source.decoder);
  source.decoder.stored = dtype.value_or(stored_type(*embedding));
  source.spec = arch::describe(source.decoder);
  add_tensors(file, dtype, source);
  text::GgufTokenizer tokenizer = tokenizer_of(metadata);
  SF_CHECK(static_cast<int64_t>(tokenizer.tokens.size()) == source.decoder.vocab, Exit::kData,
           "tokenizer.ggml.tokens holds {} tokens, token_embd.weight has {} rows", tokenizer.tokens.size(),
           source.decoder.vocab);
  note_assumed(left_out(metadata, source.decoder), source);
  std::optional<std::string> fault;
  if (!tokenizer.chat_template.empty())
    fault = text::template_fault(tokenizer.chat_template, file->path().string() + ": tokenizer.chat_template");
  judge_template(fault, source);
  source.config = arch::decoder_to_config(source.decoder);
  if (tokenizer.padding >= 0) source.config.set("pad_token_id", tokenizer.padding);
  Json words = text::tokenizer_json(tokenizer), settings = text::tokenizer_config_json(tokenizer);
  Json generation = generation_config(source.config, tokenizer.padding);
  source.write_files = [words, settings, generation](const fs::path& dir) {
    write_unsynced(dir / "tokenizer.json", words.dump(2) + "\n");
    write_unsynced(dir / "tokenizer_config.json", settings.dump(2) + "\n");
    write_unsynced(dir / "generation_config.json", generation.dump(2) + "\n");
  };
}

}  // namespace

ModelSource source_from_gguf(const fs::path& path, std::optional<Dtype> dtype) {
  auto file = std::make_shared<const ckpt::GgufFile>(ckpt::GgufFile::open(path));
  ModelSource source;
  source.format = "gguf";
  try {
    fill(file, dtype, source);
  } catch (Error& error) {
    error.add_context(path.string());
    throw;
  }
  source.provenance = provenance_of(*file);
  return source;
}

}  // namespace sf::tool
