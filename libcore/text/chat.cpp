// SPDX-License-Identifier: Apache-2.0
#include "text/chat.h"

#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/present.h"
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
  auto is_named = [](const Json& entry) {
    const Json* text = entry.is_object() ? entry.find("template") : nullptr;
    return text && text->is_string();
  };
  SF_CHECK(found->is_array() && std::ranges::all_of(found->as_array(), is_named), Exit::kData,
           "{}: chat_template is {}, wanted a string or a list of named templates", origin, found->type_name());
  for (const Json& entry : found->as_array())
    if (entry.get_string("name", "") == "default") return entry.at("template").as_string();
  fail(Exit::kConfig, "{}: chat_template: none of the {} templates is named \"default\"", origin,
       found->as_array().size());
}

// kNoInput where there is no template.
void check_template(std::string_view source, const std::filesystem::path& model_dir) {
  SF_CHECK(!source.empty(), Exit::kNoInput,
           "{}: no chat template: wanted chat_template.jinja or chat_template in tokenizer_config.json",
           model_dir.string());
}

struct TemplateText {
  std::string source, origin;
  Json config;  // of tokenizer_config.json; an empty object without it
};

// chat_template.jinja wins; the source is empty where there is no template.
TemplateText template_in(const std::filesystem::path& model_dir) {
  TemplateText found{"", (model_dir / "tokenizer_config.json").string(), Json::object()};
  if (is_present(found.origin)) found.config = Json::parse(read_file(found.origin), found.origin);
  std::filesystem::path jinja = model_dir / "chat_template.jinja";
  bool own_file = is_present(jinja);
  found.source = own_file ? read_file(jinja) : template_of(found.config, found.origin);
  found.origin = own_file ? jinja.string() : found.origin + ": chat_template";
  return found;
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
  std::string tokenizer_digest, template_digest, source;
};

ChatEncoder::ChatEncoder() = default;
ChatEncoder::~ChatEncoder() = default;
ChatEncoder::ChatEncoder(ChatEncoder&&) noexcept = default;

ChatEncoder ChatEncoder::open(const std::filesystem::path& model_dir, const Json& variables) {
  std::string tokenizer_path = (model_dir / "tokenizer.json").string();
  std::string tokenizer_bytes = read_file(tokenizer_path);
  auto [source, origin, config] = template_in(model_dir);
  check_template(source, model_dir);
  Json given = Json::object();
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) given.set(key, token_text(config, key));
  if (!variables.is_null())
    for (const auto& [key, value] : variables.as_object()) given.set(key, value);
  ChatEncoder encoder;
  encoder.state_ = std::unique_ptr<State>(new State{
      Tokenizer::from_json(Json::parse(tokenizer_bytes, tokenizer_path), tokenizer_path),
      Template::parse(source, origin), std::move(given), sha256_hex(tokenizer_bytes), sha256_hex(source), source});
  return encoder;
}

// Some faults show only at run time, hence the rendering; what the template itself refuses is none.
std::string template_fault(std::string_view source, std::string_view origin) {
  Json message = Json::object().set("role", "user").set("content", "a");
  Json variables = Json::object().set("messages", Json(Json::Array{message})).set("add_generation_prompt", true);
  try {
    Template::parse(source, origin).render(variables);
  } catch (const Error& error) {
    if (error.code() == Exit::kConfig) return error.what();
  }
  return "";
}

std::optional<std::string> chat_template_fault(const std::filesystem::path& model_dir) {
  try {
    TemplateText found = template_in(model_dir);
    if (found.source.empty()) return std::nullopt;
    return template_fault(found.source, found.origin);
  } catch (const Error& error) {
    if (error.code() == Exit::kConfig) return error.what();
    throw;
  }
}

Words digest_words(const std::filesystem::path& model_dir) {
  const std::string source = template_in(model_dir).source;
  check_template(source, model_dir);
  return {sha256_hex(read_file(model_dir / "tokenizer.json")), sha256_hex(source)};
}

bool ChatEncoder::mentions(std::string_view variable) const {
  return state_->source.find(variable) != std::string::npos;
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
