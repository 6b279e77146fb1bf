// SPDX-License-Identifier: Apache-2.0
// Tiny models as the assemblies meet them: a GGUF file and a Hugging Face directory with a byte-level tokenizer.
#pragma once
#include <gtest/gtest.h>

#include "../ckpt/gguf_builder.h"
#include "../ckpt/scratch.h"
#include "arch/decoder.h"
#include "base/file.h"
#include "base/rng.h"
#include "ckpt/checkpoint.h"
#include "text/gguf_tokenizer.h"

namespace sf::tool {

using ckpt::GgufBuilder;
using ckpt::refusal;
using ckpt::says;
using ckpt::Scratch;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// GPT-2's printable alphabet of the 256 bytes.
inline std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  int extra = 0;
  for (int byte = 0; byte < 256; ++byte) {
    bool printable = (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || byte >= 174;
    int point = printable ? byte : 256 + extra++;
    if (point < 128)
      letters.push_back(std::string(1, static_cast<char>(point)));
    else
      letters.push_back({static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 63))});
  }
  return letters;
}

inline text::GgufTokenizer tiny_tokenizer() {
  text::GgufTokenizer t;
  t.model = "gpt2";
  t.pre = "gpt-2";
  t.tokens = byte_letters();
  t.token_types.assign(256, 1);
  for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    t.tokens.push_back(special), t.token_types.push_back(3);
  t.bos = 257;
  t.eos = 258;
  t.padding = 256;
  t.chat_template = kTemplate;
  return t;
}
constexpr int64_t kVocab = 259, kHidden = 32, kInner = 48, kLayers = 4, kHeads = 4, kKvHeads = 2, kHeadDim = 8;

inline Json tiny_config(bool tied = true) {
  Json config = Json::object();
  config.set("architectures", Json(Json::Array{Json("LlamaForCausalLM")})).set("model_type", "llama");
  config.set("vocab_size", kVocab).set("hidden_size", kHidden).set("intermediate_size", kInner);
  config.set("num_hidden_layers", kLayers).set("num_attention_heads", kHeads).set("num_key_value_heads", kKvHeads);
  config.set("max_position_embeddings", 64).set("tie_word_embeddings", tied).set("bos_token_id", 257);
  return config.set("eos_token_id", 258).set("rms_norm_eps", 1e-5).set("unknown_to_us", "kept");
}

using Named = std::vector<std::pair<std::string, HostTensor>>;

inline Named random_tensors(const arch::ModelSpec& spec, Dtype dtype = Dtype::kF32) {
  Named out;
  for (const arch::Parameter& p : spec.parameters) {
    HostTensor wide(Dtype::kF32, p.shape), tensor(dtype, p.shape);
    Rng rng(1, p.name);
    for (size_t i = 0; i < wide.as<float>().size(); ++i) wide.as<float>()[i] = rng.normal(0, i);
    convert(wide.view().span(), Dtype::kF32, {tensor.data(), tensor.bytes()}, dtype);
    out.emplace_back(p.name, tensor);
  }
  return out;
}

inline std::filesystem::path write_model(const std::filesystem::path& dir, const Json& config, const Named& tensors) {
  std::filesystem::create_directory(dir);
  std::vector<std::pair<std::string, TensorView>> views;
  for (const auto& [name, tensor] : tensors) views.emplace_back(name, tensor.view());
  ckpt::write_safetensors(dir / "model.safetensors", views);
  write_atomic(dir / "config.json", config.dump());
  write_atomic(dir / "tokenizer.json", text::tokenizer_json(tiny_tokenizer()).dump());
  write_atomic(dir / "tokenizer_config.json", text::tokenizer_config_json(tiny_tokenizer()).dump());
  return dir;
}

inline std::filesystem::path tiny_model(const Scratch& scratch, bool tied = true, Dtype dtype = Dtype::kF32) {
  Json config = tiny_config(tied);
  return write_model(scratch / "hf", config, random_tensors(arch::describe(arch::decoder_from_config(config)), dtype));
}

inline GgufBuilder gguf_keys(std::string_view architecture = "llama", bool merges = true) {
  text::GgufTokenizer t = tiny_tokenizer();
  GgufBuilder b;
  b.string("general.architecture", architecture).u32("llama.block_count", kLayers);
  b.u32("llama.embedding_length", kHidden).u32("llama.feed_forward_length", kInner);
  b.u32("llama.attention.head_count", kHeads).u32("llama.attention.head_count_kv", kKvHeads);
  b.u32("llama.context_length", 64).u32("llama.rope.dimension_count", kHeadDim).f32("llama.rope.freq_base", 100000);
  b.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f).u32("llama.vocab_size", kVocab);
  b.string("tokenizer.ggml.model", "gpt2")
      .string("tokenizer.ggml.pre", "gpt-2")
      .strings("tokenizer.ggml.tokens", t.tokens);
  b.i32s("tokenizer.ggml.token_type", t.token_types);
  if (merges) b.strings("tokenizer.ggml.merges", {});
  b.u32("tokenizer.ggml.bos_token_id", 257).u32("tokenizer.ggml.eos_token_id", 258);
  return b.string("tokenizer.chat_template", kTemplate);
}

// Every value of row r of a matrix is r + offset: the order of rows shows.
inline std::string row_numbers(int64_t rows, int64_t width, float offset = 0) {
  std::vector<float> values;
  for (int64_t r = 0; r < rows; ++r)
    values.insert(values.end(), static_cast<size_t>(width), static_cast<float>(r) + offset);
  return ckpt::floats(values);
}

inline void add_matrix(GgufBuilder& b, const std::string& name, int64_t rows, int64_t width, float offset = 0) {
  b.tensor(name, {static_cast<uint64_t>(width), static_cast<uint64_t>(rows)}, 0, row_numbers(rows, width, offset));
}

inline GgufBuilder& add_layers(GgufBuilder& b, const std::string& leave_out = "") {
  std::string q8;  // every value 2: scale 1, quants 2
  for (int64_t i = 0; i < kVocab * kHidden / 32; ++i) q8 += GgufBuilder::raw(float_to_half(1.0f)) + std::string(32, 2);
  b.tensor("token_embd.weight", {kHidden, kVocab}, 8, q8);
  b.tensor("output_norm.weight", {kHidden}, 0, row_numbers(1, kHidden, 5));
  for (int i = 0; i < kLayers; ++i) {
    std::string at = "blk." + std::to_string(i) + ".";
    for (const char* norm : {"attn_norm", "ffn_norm"})
      b.tensor(at + norm + ".weight", {kHidden}, 0, row_numbers(1, kHidden, 1));
    add_matrix(b, at + "attn_q.weight", kHeads * kHeadDim, kHidden);
    add_matrix(b, at + "attn_k.weight", kKvHeads * kHeadDim, kHidden);
    if (at + "attn_v.weight" != leave_out) add_matrix(b, at + "attn_v.weight", kKvHeads * kHeadDim, kHidden, 0.5f);
    add_matrix(b, at + "attn_output.weight", kHidden, kHeads * kHeadDim);
    add_matrix(b, at + "ffn_gate.weight", kInner, kHidden);
    add_matrix(b, at + "ffn_up.weight", kInner, kHidden);
    add_matrix(b, at + "ffn_down.weight", kHidden, kInner);
  }
  return b;
}

inline std::vector<float> floats_of(const ckpt::Checkpoint& open, const std::string& name) {
  std::vector<float> out(static_cast<size_t>(numel(open.info(name).shape)));
  open.read(name, 0, static_cast<int64_t>(out.size()), Dtype::kF32, std::as_writable_bytes(std::span(out)));
  return out;
}

}  // namespace sf::tool
