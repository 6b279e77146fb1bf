// SPDX-License-Identifier: Apache-2.0
// Chats to token ids with a loss mask. Text is tokenised once; ids travel, text never comes back to ids.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sf::text {

class Tokenizer;

enum class MaskRule {
  kTurn,       // everything the target would generate: the answer and its end-of-turn token, not the newline after it
  kReference,  // SpecForge's rule: the template's text after the end-of-turn token included (eagle_dflash 8.2)
};

struct EncodedChat {
  std::vector<int32_t> ids;
  std::vector<uint8_t> loss_mask;  // 1: supervised token
  size_t cut = 0;                  // tokens behind max_length that were left out
  size_t supervised() const;       // the first token is not counted: nothing stands before it to predict it from
};

// Tokenizer and chat template of one model directory (tokenizer.json, tokenizer_config.json or chat_template.jinja).
// Immutable and safe to share between threads.
class ChatEncoder {
 public:
  // kNoInput if tokenizer.json or a template is missing; kConfig if the template uses what the Jinja subset lacks.
  // `variables`: an object of further names for the template (enable_thinking, date_string, ...), or null. strftime_now
  // sees a fixed day (2024-07-26), so that prompts are the same every day.
  static ChatEncoder open(const std::filesystem::path& model_dir, const Json& variables = {});
  ~ChatEncoder();
  ChatEncoder(ChatEncoder&&) noexcept;

  const Tokenizer& tokenizer() const;
  std::string render(const Json& messages, bool add_generation_prompt) const;  // kData with the template's own reason
  // Prompt ids up to the point where the target starts to write.
  std::vector<int32_t> encode_prompt(const Json& messages) const;
  // Whole chat, truncated to max_length tokens (0: no limit). The mask comes from rendering prefixes and is verified
  // against the tokens: a prefix that does not tokenise to a prefix of the whole is kData.
  // An answer that the template writes differently inside the whole chat than behind its own prompt (reasoning dropped
  // from history) is not what the target would write: it stays unsupervised under kTurn.
  EncodedChat encode(const Json& messages, MaskRule rule, size_t max_length) const;
  // Text that is rendered already: answers are found between the template's generation prompt and its end of turn.
  EncodedChat encode_rendered(const std::string& text, MaskRule rule, size_t max_length) const;
  bool mentions(std::string_view variable) const;  // the template's source has this word
  std::string tokenizer_digest() const;            // SHA-256 of tokenizer.json's bytes
  std::string template_digest() const;

 private:
  ChatEncoder();
  struct State;
  std::unique_ptr<State> state_;
};

// The digests that a ChatEncoder of this directory would give, without making one. kNoInput as open().
struct Words {
  std::string tokenizer, chat_template;
};
Words digest_words(const std::filesystem::path& model_dir);

// Why chats cannot be rendered with a template, with line and column (the parts of Jinja that the subset lacks), or "".
std::string template_fault(std::string_view source, std::string_view origin);
// The same of a model directory's template; nullopt: it holds none. kData: the file that should hold it is damaged.
std::optional<std::string> chat_template_fault(const std::filesystem::path& model_dir);

// Rows of a chats file (JSON Lines). Accepted: {"messages": [...]}, {"conversations": [...]} (role|from, content|value;
// human, gpt translated), {"text": "..."} and {"input_ids": [...], "loss_mask": [...]}.
struct ChatRow {
  uint64_t row = 0;      // 0-based line among non-empty lines
  std::string id;        // its "id", else "row-N"
  EncodedChat encoded;   // empty if rejected
  std::string rejected;  // reason (the template raised, no supervised token, ...); empty: accepted
};

inline constexpr const char* kNoSupervisedToken = "no supervised token";  // a reason of its own, for those who count

// Reads and encodes all rows. A line that is no JSON object, or whose "id" is neither text nor a whole number, is kData
// naming file and line; a row the template rejects is kept with its reason.
std::vector<ChatRow> read_chats(const std::filesystem::path& file, const ChatEncoder& encoder, MaskRule rule,
                                size_t max_length);
// Raw rows for regenerate and eval: id and the messages to send (without assistant turns after the last user turn).
// Accepted: "messages", "conversations", or {"prompt": "..."} for one user message. Anything else is kData with file
// and line.
struct Prompt {
  std::string id;
  Json messages;
  std::string origin;  // "FILE:LINE"
};
std::vector<Prompt> read_prompts(const std::filesystem::path& file);
// The messages to send of one list of them, names of roles and members as above. kData for anything else.
Json prompt_messages(const Json& list);

}  // namespace sf::text
