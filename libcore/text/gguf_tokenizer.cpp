// SPDX-License-Identifier: Apache-2.0
#include "text/gguf_tokenizer.h"

#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "text/split.h"

namespace sf::text {
namespace {

constexpr int32_t kControl = 3, kUserDefined = 4;

Json object(std::initializer_list<Json::Member> members) {
  return Json(Json::Object(members));
}

Json byte_level(bool use_regex) {
  return object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}});
}

Json sequence(Json first, Json second) {
  return object({{"type", "Sequence"}, {"pretokenizers", Json(Json::Array{std::move(first), std::move(second)})}});
}

Json split(std::string_view pattern) {
  return object(
      {{"type", "Split"}, {"pattern", object({{"Regex", pattern}})}, {"behavior", "Isolated"}, {"invert", false}});
}

Json pre_tokenizer(const std::string& pre) {
  if (pre == "smollm") return sequence(object({{"type", "Digits"}, {"individual_digits", true}}), byte_level(true));
  if (pre == "qwen2") return sequence(split(kQwen2Pattern), byte_level(false));
  if (pre == "llama-bpe") return sequence(split(kLlama3Pattern), byte_level(false));
  if (pre == "gpt-2") return byte_level(true);
  fail(Exit::kConfig, "tokenizer.ggml.pre \"{}\" is not supported (smollm, qwen2, llama-bpe and gpt-2 are)", pre);
}

void check(const GgufTokenizer& source) {
  SF_CHECK(source.model == "gpt2", Exit::kConfig,
           "tokenizer.ggml.model \"{}\" is not supported (gpt2, byte-level BPE, is)", source.model);
  SF_CHECK(source.token_types.size() == source.tokens.size(), Exit::kData,
           "tokenizer.ggml.token_type has {} entries, wanted one for each of the {} tokens", source.token_types.size(),
           source.tokens.size());
  SF_CHECK(!source.add_space_prefix, Exit::kConfig,
           "tokenizer.ggml.add_space_prefix is not supported with byte-level BPE");
  int64_t size = static_cast<int64_t>(source.tokens.size());
  const std::pair<const char*, int64_t> ids[] = {{"bos_token_id", source.bos},
                                                 {"eos_token_id", source.eos},
                                                 {"unknown_token_id", source.unknown},
                                                 {"padding_token_id", source.padding}};
  for (const auto& [name, id] : ids)
    SF_CHECK(id >= -1 && id < size, Exit::kData, "tokenizer.ggml.{} is {}, wanted an id below {}", name, id, size);
  SF_CHECK(!source.add_bos || source.bos >= 0, Exit::kData,
           "tokenizer.ggml.add_bos_token is set, but there is no bos_token_id");
}

Json added_token(const GgufTokenizer& source, size_t id) {
  return object({{"id", static_cast<int64_t>(id)},
                 {"content", source.tokens[id]},
                 {"single_word", false},
                 {"lstrip", false},
                 {"rstrip", false},
                 {"normalized", false},
                 {"special", source.token_types[id] == kControl}});
}

Json post_processor(const GgufTokenizer& source) {
  if (!source.add_bos) return {};
  const std::string& bos = source.tokens[static_cast<size_t>(source.bos)];
  Json bos_item = object({{"SpecialToken", object({{"id", bos}, {"type_id", 0}})}});
  Json text_item = object({{"Sequence", object({{"id", "A"}, {"type_id", 0}})}});
  Json entry = object({{"id", bos}, {"ids", Json(Json::Array{source.bos})}, {"tokens", Json(Json::Array{bos})}});
  return object({{"type", "TemplateProcessing"},
                 {"single", Json(Json::Array{bos_item, text_item})},
                 {"pair", Json::array()},
                 {"special_tokens", object({{bos, entry}})}});
}

}  // namespace

Json tokenizer_json(const GgufTokenizer& source) {
  check(source);
  Json::Object vocab;
  Json::Array merges, added;
  std::unordered_set<std::string_view> seen;
  vocab.reserve(source.tokens.size());
  for (size_t id = 0; id < source.tokens.size(); ++id) {
    int32_t type = source.token_types[id];
    SF_CHECK(seen.insert(source.tokens[id]).second, Exit::kData, "tokenizer.ggml.tokens[{}]: \"{}\" occurs twice", id,
             source.tokens[id]);
    // Qwen and Llama 3 keep added tokens out of the vocabulary; a token in both has one id, so both forms read alike.
    vocab.emplace_back(source.tokens[id], static_cast<int64_t>(id));
    if (type == kControl || type == kUserDefined) added.push_back(added_token(source, id));
  }
  for (const std::string& merge : source.merges) merges.emplace_back(merge);
  Json model = object({{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", source.pre == "llama-bpe"}});
  model.as_object().emplace_back("vocab", Json(std::move(vocab)));
  model.as_object().emplace_back("merges", Json(std::move(merges)));
  Json out = object({{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", Json(std::move(added))},
                     {"normalizer", source.pre == "qwen2" ? object({{"type", "NFC"}}) : Json()},
                     {"pre_tokenizer", pre_tokenizer(source.pre)},
                     {"post_processor", post_processor(source)},
                     {"decoder", byte_level(true)}});
  out.as_object().emplace_back("model", std::move(model));
  return out;
}

Json tokenizer_config_json(const GgufTokenizer& source) {
  check(source);
  Json out = object({{"add_prefix_space", false}, {"add_bos_token", source.add_bos}});
  const std::pair<const char*, int64_t> names[] = {{"bos_token", source.bos},
                                                   {"eos_token", source.eos},
                                                   {"pad_token", source.padding},
                                                   {"unk_token", source.unknown}};
  for (const auto& [name, id] : names)
    if (id >= 0) out.set(name, source.tokens[static_cast<size_t>(id)]);
  if (!source.chat_template.empty()) out.set("chat_template", source.chat_template);
  out.set("clean_up_tokenization_spaces", false);
  out.set("tokenizer_class", "PreTrainedTokenizerFast");
  return out;
}

}  // namespace sf::text
