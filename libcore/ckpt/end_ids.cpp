// SPDX-License-Identifier: Apache-2.0
#include "ckpt/end_ids.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/present.h"

namespace sf::ckpt {
namespace {

namespace fs = std::filesystem;

// An object, or null without the file.
Json settings_in(const fs::path& file) {
  if (!is_present(file)) return {};
  Json json = Json::parse(read_file(file), file.string());
  SF_CHECK(json.is_object(), Exit::kData, "{}: wanted an object, found {}", file.string(), json.type_name());
  return json;
}

int32_t checked(const Json& id, std::string_view key, const fs::path& file, int64_t vocab) {
  SF_CHECK(id.is_int() && id.as_int() >= 0 && id.as_int() < vocab, Exit::kData,
           "{}: {}: {} is no token of a vocabulary of {}", file.string(), key, id.dump(), vocab);
  return static_cast<int32_t>(id.as_int());
}

// The tokenizer's own table may place the token that it calls the end beyond the model's last row.
void check_eos_token(const fs::path& file, int64_t vocab) {
  const Json settings = settings_in(file);
  const Json *token = settings.find("eos_token"), *table = settings.find("added_tokens_decoder");
  if (token && token->is_object()) token = token->find("content");
  if (!token || !token->is_string() || !table || !table->is_object()) return;
  for (const auto& [id, entry] : table->as_object())
    if (entry.is_object() && entry.get_string("content", "") == token->as_string())
      checked(Json::parse(id, file.string()), "eos_token", file, vocab);
}

}  // namespace

std::vector<int32_t> end_ids_of(const fs::path& dir, const arch::Decoder& decoder) {
  check_eos_token(dir / "tokenizer_config.json", decoder.vocab);
  const fs::path file = dir / "generation_config.json";
  const Json settings = settings_in(file);
  const Json* eos = settings.find("eos_token_id");
  std::vector<int32_t> ids;
  if (eos && eos->is_array())
    for (const Json& id : eos->as_array()) ids.push_back(checked(id, "eos_token_id", file, decoder.vocab));
  else if (eos && !eos->is_null())
    ids.push_back(checked(*eos, "eos_token_id", file, decoder.vocab));
  if (ids.empty()) ids.assign(decoder.eos.begin(), decoder.eos.end());
  return ids;
}

}  // namespace sf::ckpt
