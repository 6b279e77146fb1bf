// SPDX-License-Identifier: Apache-2.0
// Chats files: JSON Lines to encoded rows and to prompts.
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "text/chat.h"
#include "text/chat_mask.h"
#include "text/tokenizer.h"

namespace sf::text {
namespace {

// Calls `row` with each non-empty line as JSON, its number among them, and its "FILE:LINE".
void each_line(const std::filesystem::path& file,
               const std::function<void(const Json&, uint64_t, const std::string&)>& row) {
  std::string text = read_file(file);
  uint64_t number = 0;
  size_t line = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view content(text.data() + at, end - at);
    at = end + 1;
    ++line;
    if (content.find_first_not_of(" \t\r") == content.npos) continue;
    std::string origin = fmt::format("{}:{}", file.string(), line);
    Json json = Json::parse(content, origin);
    SF_CHECK(json.is_object(), Exit::kData, "{}: wanted one JSON object a line, found {}", origin, json.type_name());
    row(json, number++, origin);
  }
}

std::string id_of_row(const Json& json, uint64_t number, const std::string& origin) {
  const Json* id = json.find("id");
  if (!id || id->is_null()) return fmt::format("row-{}", number);
  if (id->is_int()) return std::to_string(id->as_int());
  SF_CHECK(id->is_string(), Exit::kData, "{}: \"id\" is {}, wanted a string or a whole number", origin,
           id->type_name());
  return id->as_string().empty() ? fmt::format("row-{}", number) : id->as_string();
}

std::string role_of(const std::string& name) {
  if (name == "human") return "user";
  if (name == "gpt") return "assistant";
  return name;
}

// role|from and content|value become role and content; other members pass on.
Json normalised_message(const Json& message) {
  SF_CHECK(message.is_object(), Exit::kData, "a message is {}, wanted an object", message.type_name());
  const Json* role = message.find("role");
  if (!role) role = message.find("from");
  SF_CHECK(role && role->is_string(), Exit::kData, "a message has no \"role\" (or \"from\")");
  Json out = Json::object();
  out.set("role", role_of(role->as_string()));
  const Json* content = message.find("content");
  if (!content) content = message.find("value");
  if (content) out.set("content", *content);
  for (const auto& [key, value] : message.as_object())
    if (key != "role" && key != "from" && key != "content" && key != "value") out.set(key, value);
  return out;
}

Json normalised_messages(const Json& list) {
  SF_CHECK(list.is_array() && !list.as_array().empty(), Exit::kData, "wanted a list of messages, found {}",
           list.is_array() ? "an empty one" : list.type_name());
  Json out = Json::array();
  for (const Json& message : list.as_array()) out.push(normalised_message(message));
  return out;
}

// The messages of a row, or null if it has none.
Json messages_of(const Json& json) {
  const Json* list = json.find("messages");
  if (!list) list = json.find("conversations");
  return list ? normalised_messages(*list) : Json();
}

// The numbers of input_ids or loss_mask; a single row around them is unwrapped.
const Json::Array& numbers_of(const Json& json, std::string_view key) {
  const Json* list = &json.at(key);
  SF_CHECK(list->is_array(), Exit::kData, "{}: wanted a list, found {}", key, list->type_name());
  if (list->as_array().size() == 1 && list->as_array()[0].is_array()) list = &list->as_array()[0];
  return list->as_array();
}

EncodedChat encoded_ids(const Json& json, const Tokenizer& tokenizer) {
  for (const char* key : {"input_ids", "loss_mask"})
    SF_CHECK(json.contains(key), Exit::kData, "\"{}\" is missing: input_ids and loss_mask go together", key);
  const Json::Array& ids = numbers_of(json, "input_ids");
  const Json::Array& mask = numbers_of(json, "loss_mask");
  SF_CHECK(ids.size() == mask.size(), Exit::kData, "{} input_ids and {} values of loss_mask: wanted as many",
           ids.size(), mask.size());
  EncodedChat out;
  for (size_t i = 0; i < ids.size(); ++i) {
    SF_CHECK(ids[i].is_int() && ids[i].as_int() >= 0 && ids[i].as_int() < tokenizer.vocab_size(), Exit::kData,
             "input_ids[{}] is {}, wanted a token id below {}", i, ids[i].dump(), tokenizer.vocab_size());
    SF_CHECK(mask[i].is_int() && (mask[i].as_int() == 0 || mask[i].as_int() == 1), Exit::kData,
             "loss_mask[{}] is {}, wanted 0 or 1", i, mask[i].dump());
    out.ids.push_back(static_cast<int32_t>(ids[i].as_int()));
    out.loss_mask.push_back(static_cast<uint8_t>(mask[i].as_int()));
  }
  return out;
}

EncodedChat encode_row(const Json& json, const ChatEncoder& encoder, MaskRule rule, size_t max_length) {
  if (json.contains("input_ids") || json.contains("loss_mask"))
    return truncated(encoded_ids(json, encoder.tokenizer()), max_length);
  Json messages = messages_of(json);
  if (!messages.is_null()) return encoder.encode(messages, rule, max_length);
  const Json* text = json.find("text");
  SF_CHECK(text && text->is_string(), Exit::kData,
           "wanted \"messages\", \"conversations\", \"text\" or \"input_ids\" with \"loss_mask\"");
  return encoder.encode_rendered(text->as_string(), rule, max_length);
}

// Without what the target shall write: assistant messages behind the last user message.
Json without_answer(const Json& messages) {
  Json::Array list = messages.as_array();
  auto role = [](const Json& message) { return message.at("role").as_string(); };
  size_t end = list.size();
  while (end > 0 && role(list[end - 1]) != "user") --end;
  SF_CHECK(end > 0, Exit::kData, "a prompt needs a user message");
  Json::Array kept;
  for (size_t i = 0; i < list.size(); ++i)
    if (i < end || role(list[i]) != "assistant") kept.push_back(list[i]);
  return Json(std::move(kept));
}

}  // namespace

Json prompt_messages(const Json& list) {
  return without_answer(normalised_messages(list));
}

std::vector<ChatRow> read_chats(const std::filesystem::path& file, const ChatEncoder& encoder, MaskRule rule,
                                size_t max_length) {
  std::vector<ChatRow> rows;
  each_line(file, [&](const Json& json, uint64_t number, const std::string& origin) {
    ChatRow row;
    row.row = number;
    row.id = id_of_row(json, number, origin);
    try {
      row.encoded = encode_row(json, encoder, rule, max_length);
      if (row.encoded.supervised() == 0) row.rejected = kNoSupervisedToken;
    } catch (const Error& error) {
      if (error.code() != Exit::kData) throw;
      row.rejected = error.what();
    }
    if (!row.rejected.empty()) row.encoded = {};
    rows.push_back(std::move(row));
  });
  return rows;
}

std::vector<Prompt> read_prompts(const std::filesystem::path& file) {
  std::vector<Prompt> prompts;
  each_line(file, [&](const Json& json, uint64_t number, const std::string& origin) {
    std::string id = id_of_row(json, number, origin);
    try {
      Json messages = messages_of(json);
      if (messages.is_null()) {
        const Json* prompt = json.find("prompt");
        SF_CHECK(prompt && prompt->is_string(), Exit::kData, "wanted \"messages\", \"conversations\" or \"prompt\"");
        Json message = Json::object();
        message.set("role", "user").set("content", *prompt);
        messages = Json(Json::Array{message});
      }
      prompts.push_back({std::move(id), without_answer(messages), origin});
    } catch (Error& error) {
      error.add_context(origin);
      throw;
    }
  });
  return prompts;
}

}  // namespace sf::text
