// SPDX-License-Identifier: Apache-2.0
#include "text/chat.h"

#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "text/chat_mask.h"
#include "text/template.h"
#include "text/tokenizer.h"

namespace sf::text {
namespace {

// A token of tokenizer_config.json: a string, or an object with "content".
std::string token_text(const Json& config, std::string_view key) {
  const Json* value = config.find(key);
  if (!value || value->is_null()) return "";
  return value->is_object() ? value->at("content").as_string() : value->as_string();
}

// The template named "default" where several are given.
std::string template_of(const Json& config, const std::string& origin) {
  const Json* found = config.find("chat_template");
  if (!found || found->is_null()) return "";
  if (found->is_string()) return found->as_string();
  for (const Json& entry : found->as_array())
    if (entry.get_string("name", "") == "default") return entry.at("template").as_string();
  fail(Exit::kConfig, "{}: chat_template: none of the {} templates is named \"default\"", origin,
       found->as_array().size());
}

}  // namespace

size_t EncodedChat::supervised() const {
  auto first = loss_mask.begin() + (loss_mask.empty() ? 0 : 1);
  return static_cast<size_t>(std::count_if(first, loss_mask.end(), [](uint8_t bit) { return bit != 0; }));
}

struct ChatEncoder::State {
  Tokenizer tokenizer;
  Template chat_template;
  Json variables;
  std::string tokenizer_digest, template_digest;
};

ChatEncoder::ChatEncoder() = default;
ChatEncoder::~ChatEncoder() = default;
ChatEncoder::ChatEncoder(ChatEncoder&&) noexcept = default;

ChatEncoder ChatEncoder::open(const std::filesystem::path& model_dir, const Json& variables) {
  std::string tokenizer_path = (model_dir / "tokenizer.json").string(),
              config_path = (model_dir / "tokenizer_config.json").string();
  std::string tokenizer_bytes = read_file(tokenizer_path);
  Json config = Json::object();
  if (std::filesystem::exists(config_path)) config = Json::parse(read_file(config_path), config_path);
  std::filesystem::path jinja = model_dir / "chat_template.jinja";
  bool own_file = std::filesystem::exists(jinja);
  std::string source = own_file ? read_file(jinja) : template_of(config, config_path);
  SF_CHECK(!source.empty(), Exit::kNoInput,
           "{}: no chat template: wanted chat_template.jinja or chat_template in tokenizer_config.json",
           model_dir.string());
  Json given = Json::object();
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) given.set(key, token_text(config, key));
  if (!variables.is_null())
    for (const auto& [key, value] : variables.as_object()) given.set(key, value);
  ChatEncoder encoder;
  encoder.state_ = std::unique_ptr<State>(
      new State{Tokenizer::from_json(Json::parse(tokenizer_bytes, tokenizer_path), tokenizer_path),
                Template::parse(source, own_file ? jinja.string() : config_path + ": chat_template"), std::move(given),
                sha256_hex(tokenizer_bytes), sha256_hex(source)});
  return encoder;
}

const Tokenizer& ChatEncoder::tokenizer() const {
  return state_->tokenizer;
}
std::string ChatEncoder::tokenizer_digest() const {
  return state_->tokenizer_digest;
}
std::string ChatEncoder::template_digest() const {
  return state_->template_digest;
}

std::string ChatEncoder::render(const Json& messages, bool add_generation_prompt) const {
  Json variables = state_->variables;
  variables.set("messages", messages);
  variables.set("add_generation_prompt", add_generation_prompt);
  return state_->chat_template.render(variables);
}

std::vector<int32_t> ChatEncoder::encode_prompt(const Json& messages) const {
  return state_->tokenizer.encode(render(messages, true));
}

EncodedChat ChatEncoder::encode(const Json& messages, MaskRule rule, size_t max_length) const {
  MaskMaker maker{*this, rule, max_length};
  EncodedChat encoded = rule == MaskRule::kTurn ? maker.by_prefixes(messages) : maker.by_spans(render(messages, false));
  return truncated(std::move(encoded), max_length);
}

EncodedChat ChatEncoder::encode_rendered(const std::string& text, MaskRule rule, size_t max_length) const {
  return truncated(MaskMaker{*this, rule, max_length}.by_spans(text), max_length);
}

}  // namespace sf::text
