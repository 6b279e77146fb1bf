// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/split.h"
#include "text/unicode.h"

namespace sf::text {
namespace {

// "normalizer": true for NFC, false for none; anything else is refused.
bool reads_nfc(const Json* json, std::string_view origin, const std::string& path, int depth = 0) {
  if (!json || json->is_null()) return false;
  SF_CHECK(depth < 16, Exit::kData, "{}: {}: normalizers are nested too deeply", origin, path);
  std::string type = json->get_string("type", "");
  if (type == "NFC") return true;
  SF_CHECK(type == "Sequence", Exit::kData, "{}: {}: normalizer \"{}\" is not supported (NFC and none are)", origin,
           path, type);
  bool nfc = false;
  const Json::Array& list = json->at("normalizers").as_array();
  for (size_t i = 0; i < list.size(); ++i)
    nfc = reads_nfc(&list[i], origin, fmt::format("{}.normalizers[{}]", path, i), depth + 1) || nfc;
  return nfc;
}

void check_decoder(const Json* json, std::string_view origin, const std::string& path, int depth = 0) {
  SF_CHECK(json && json->is_object() && depth < 16, Exit::kData, "{}: {}: wanted a ByteLevel decoder, found none",
           origin, path);
  std::string type = json->get_string("type", "");
  if (type == "ByteLevel") return;
  SF_CHECK(type == "Sequence", Exit::kData, "{}: {}: decoder \"{}\" is not supported (ByteLevel is)", origin, path,
           type);
  const Json::Array& list = json->at("decoders").as_array();
  SF_CHECK(list.size() == 1, Exit::kData, "{}: {}: wanted one ByteLevel decoder, found {}", origin, path, list.size());
  check_decoder(&list[0], origin, path + ".decoders[0]", depth + 1);
}

}  // namespace

struct Tokenizer::State {
  explicit State(Bpe model) : bpe(std::move(model)) {}

  Bpe bpe;
  PreTokenizer pre;
  bool nfc = false;
  AddedTokenMatcher raw, normalised;
  std::unordered_map<std::string, int32_t> names;  // added tokens, and vocabulary tokens outside the byte alphabet
  std::vector<std::string> bytes;                  // by id
  std::vector<uint8_t> flags;                      // by id: 1 present, 2 special
  std::vector<int32_t> before, after;              // what the post-processor puts around a text

  void read_vocab();
  void read_added(const Json& list, std::string_view origin);
  void read_post(const Json* json, std::string_view origin, const std::string& path, int depth = 0);
  void encode_ordinary(std::string_view text, Pieces& scratch, std::vector<int32_t>& out) const;
  void encode_normalised(std::string_view text, Pieces& scratch, std::vector<int32_t>& out) const;
  bool has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < flags.size() && flags[static_cast<size_t>(id)];
  }
};

void Tokenizer::State::read_vocab() {
  size_t size = bpe.tokens().size();
  bytes.resize(size);
  flags.resize(size);
  for (size_t id = 0; id < size; ++id) {
    if (!bpe.present(id)) continue;
    flags[id] = 1;
    if (!token_to_bytes(bpe.tokens()[id], bytes[id])) names.emplace(bpe.tokens()[id], static_cast<int32_t>(id));
  }
}

void Tokenizer::State::read_added(const Json& list, std::string_view origin) {
  size_t limit = 2 * (bytes.size() + list.as_array().size()) + 65536;
  for (size_t i = 0; i < list.as_array().size(); ++i) {
    const Json& entry = list.as_array()[i];
    AddedToken token;
    token.content = entry.at("content").as_string();
    token.single_word = entry.get_bool("single_word", false);
    token.lstrip = entry.get_bool("lstrip", false);
    token.rstrip = entry.get_bool("rstrip", false);
    token.special = entry.get_bool("special", false);
    token.normalized = entry.get_bool("normalized", !token.special);
    int64_t id = entry.at("id").as_int();
    SF_CHECK(id >= 0 && static_cast<size_t>(id) < limit, Exit::kData,
             "{}: added_tokens[{}]: id {} of \"{}\" is out of range [0, {})", origin, i, id, token.content, limit);
    std::string spelled;
    bool plain = token_to_bytes(token.content, spelled);
    auto named = names.find(token.content);
    // A content that the vocabulary has keeps the vocabulary's id.
    if (plain && bpe.id_of_bytes(spelled) >= 0)
      id = bpe.id_of_bytes(spelled);
    else if (named != names.end())
      id = named->second;
    size_t at = static_cast<size_t>(id);
    if (at >= bytes.size()) bytes.resize(at + 1), flags.resize(at + 1);
    SF_CHECK(!flags[at] || bytes[at] == spelled, Exit::kData,
             "{}: added_tokens[{}]: id {} of \"{}\" belongs to \"{}\" already", origin, i, id, token.content,
             bytes[at]);
    bytes[at] = spelled;
    flags[at] = static_cast<uint8_t>(flags[at] | 1 | (token.special ? 2 : 0));
    names.emplace(token.content, static_cast<int32_t>(id));
    token.id = static_cast<int32_t>(id);
    if (token.normalized)
      normalised.add(token, nfc ? text::nfc(token.content) : token.content);
    else
      raw.add(token, token.content);
  }
}

void Tokenizer::State::read_post(const Json* json, std::string_view origin, const std::string& path, int depth) {
  if (!json || json->is_null()) return;
  SF_CHECK(depth < 16, Exit::kData, "{}: {}: post-processors are nested too deeply", origin, path);
  std::string type = json->get_string("type", "");
  if (type == "ByteLevel") return;
  if (type == "Sequence") {
    const Json::Array& list = json->at("processors").as_array();
    for (size_t i = 0; i < list.size(); ++i)
      read_post(&list[i], origin, fmt::format("{}.processors[{}]", path, i), depth + 1);
    return;
  }
  SF_CHECK(type == "TemplateProcessing", Exit::kData,
           "{}: {}: post-processor \"{}\" is not supported (TemplateProcessing, ByteLevel and Sequence are)", origin,
           path, type);
  SF_CHECK(before.empty() && after.empty(), Exit::kData, "{}: {}: a second TemplateProcessing is not supported", origin,
           path);
  bool behind = false;
  for (const Json& item : json->at("single").as_array()) {
    if (item.contains("Sequence")) {
      SF_CHECK(!behind, Exit::kData, "{}: {}.single: the text may occur once only", origin, path);
      behind = true;
      continue;
    }
    const std::string& name = item.at("SpecialToken").at("id").as_string();
    for (const Json& id : json->at("special_tokens").at(name).at("ids").as_array()) {
      int64_t value = id.as_int();
      SF_CHECK(value >= 0 && value <= INT32_MAX && has(static_cast<int32_t>(value)), Exit::kData,
               "{}: {}: id {} of \"{}\" is not a token", origin, path, value, name);
      (behind ? after : before).push_back(static_cast<int32_t>(value));
    }
  }
  SF_CHECK(behind, Exit::kData, "{}: {}.single: has no place for the text", origin, path);
}

void Tokenizer::State::encode_normalised(std::string_view text, Pieces& scratch, std::vector<int32_t>& out) const {
  pre.split(text, scratch);
  for (std::string_view piece : scratch.list) bpe.encode(piece, out);
}

void Tokenizer::State::encode_ordinary(std::string_view text, Pieces& scratch, std::vector<int32_t>& out) const {
  std::string changed;
  if (nfc && may_need_nfc(text) && !fault("text.nfc")) {
    changed = text::nfc(text);
    text = changed;
  }
  if (normalised.empty()) return encode_normalised(text, scratch, out);
  std::vector<Segment> segments;
  normalised.cut(text, segments);
  for (const Segment& segment : segments) {
    if (segment.id >= 0)
      out.push_back(segment.id);
    else
      encode_normalised(segment.text, scratch, out);
  }
}

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::open(const std::filesystem::path& tokenizer_json) {
  return from_json(Json::parse(read_file(tokenizer_json), tokenizer_json.string()), tokenizer_json.string());
}

Tokenizer Tokenizer::from_json(const Json& json, std::string_view origin) try {
  SF_CHECK(json.is_object(), Exit::kData, "wanted an object, found {}", json.type_name());
  Tokenizer result;
  result.state_ = std::make_unique<State>(Bpe::from_json(json.at("model"), origin));
  State& state = *result.state_;
  const Json* pre = json.find("pre_tokenizer");
  SF_CHECK(pre && !pre->is_null(), Exit::kData, "{}: pre_tokenizer: wanted a ByteLevel stage, found none", origin);
  state.pre = PreTokenizer::from_json(*pre, origin);
  state.nfc = reads_nfc(json.find("normalizer"), origin, "normalizer");
  check_decoder(json.find("decoder"), origin, "decoder");
  unicode_classes();  // built now, not within the first text
  state.read_vocab();
  if (const Json* added = json.find("added_tokens"); added && !added->is_null()) state.read_added(*added, origin);
  state.read_post(json.find("post_processor"), origin, "post_processor");
  return result;
} catch (Error& error) {
  if (error.message().find(origin) == std::string::npos) error.add_context(origin);
  throw;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool with_special) const {
  size_t broken = invalid_utf8_at(text);
  SF_CHECK(broken == std::string_view::npos, Exit::kData, "text is not valid UTF-8 at byte {}", broken);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (with_special) ids = state_->before;
  thread_local Pieces scratch;
  std::vector<Segment> segments;
  state_->raw.cut(text, segments);
  for (const Segment& segment : segments) {
    if (segment.id >= 0)
      ids.push_back(segment.id);
    else
      state_->encode_ordinary(segment.text, scratch, ids);
  }
  if (with_special) ids.insert(ids.end(), state_->after.begin(), state_->after.end());
  return ids;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string bytes;
  for (int32_t id : ids)
    if (has(id) && !(skip_special && is_special(id))) bytes += state_->bytes[static_cast<size_t>(id)];
  return replace_invalid(bytes);
}

std::string Tokenizer::bytes_of(int32_t id) const {
  SF_CHECK(has(id), Exit::kData, "token id {} is out of range [0, {})", id, vocab_size());
  return state_->bytes[static_cast<size_t>(id)];
}

int32_t Tokenizer::id_of(std::string_view token) const {
  auto named = state_->names.find(std::string(token));
  if (named != state_->names.end()) return named->second;
  std::string bytes;
  return token_to_bytes(token, bytes) ? state_->bpe.id_of_bytes(bytes) : -1;
}

bool Tokenizer::has(int32_t id) const {
  return state_->has(id);
}
bool Tokenizer::is_special(int32_t id) const {
  return has(id) && (state_->flags[static_cast<size_t>(id)] & 2);
}
int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(state_->flags.size());
}

std::string StreamDecoder::push(int32_t id) {
  if (!tokenizer_->has(id)) return {};
  held_ += tokenizer_->bytes_of(id);
  size_t whole = 0;
  while (whole < held_.size()) {
    Decoded step = decode_utf8(held_, whole);
    if (step.truncated) break;
    whole += step.length;
  }
  std::string ready = replace_invalid(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  return ready;
}

std::string StreamDecoder::finish() {
  std::string rest = replace_invalid(held_);
  held_.clear();
  return rest;
}

}  // namespace sf::text
