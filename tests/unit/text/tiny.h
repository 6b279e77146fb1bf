// SPDX-License-Identifier: Apache-2.0
// A byte-level tokenizer small enough to read, and a ChatML model directory around it.
#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/unicode.h"

namespace sf::text::tiny {

inline Json object(std::initializer_list<Json::Member> members) {
  return Json(Json::Object(members));
}

inline Json added(int64_t id, const char* content, bool special = true) {
  return object({{"id", id},
                 {"content", content},
                 {"single_word", false},
                 {"lstrip", false},
                 {"rstrip", false},
                 {"normalized", false},
                 {"special", special}});
}

inline Json byte_level(bool use_regex) {
  return object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}});
}

// 256 bytes in the alphabet's order of ids, then one token a merge ("left", "right" as bytes), then the ChatML marks.
inline Json tokenizer(const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  Json vocab = Json::object(), list = Json::array();
  for (int b = 0; b < 256; ++b) vocab.set(bytes_to_token(std::string(1, static_cast<char>(b))), b);
  int64_t next = 256;
  for (const auto& [left, right] : merges) {
    vocab.set(bytes_to_token(left + right), next++);
    list.push(Json(Json::Array{Json(bytes_to_token(left)), Json(bytes_to_token(right))}));
  }
  Json marks = Json::array();
  for (const char* mark : {"<|im_start|>", "<|im_end|>"}) marks.push(added(next++, mark));
  Json out = object({{"version", "1.0"},
                     {"added_tokens", marks},
                     {"normalizer", object({{"type", "NFC"}})},
                     {"pre_tokenizer", byte_level(true)},
                     {"post_processor", nullptr},
                     {"decoder", byte_level(true)}});
  out.set("model", object({{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}));
  return out;
}

inline const char* chatml() {
  return "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('no role ' ~ "
         "m.role) }}"
         "{% endif %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
}

// A model directory that is removed with the object.
struct ModelDir {
  std::filesystem::path path;
  explicit ModelDir(const Json& tokenizer_json, const std::string& chat_template) {
    char name[] = "/tmp/sf-text-XXXXXX";
    path = mkdtemp(name);
    write("tokenizer.json", tokenizer_json.dump());
    Json config = object({{"eos_token", object({{"content", "<|im_end|>"}})}});
    if (!chat_template.empty()) config.set("chat_template", chat_template);
    write("tokenizer_config.json", config.dump());
  }
  ~ModelDir() { std::filesystem::remove_all(path); }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    write_atomic(path / name, text);
    return path / name;
  }
};

}  // namespace sf::text::tiny
