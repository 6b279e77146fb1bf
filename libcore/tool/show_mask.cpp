// SPDX-License-Identifier: Apache-2.0
#include "tool/show_mask.h"

#include <fmt/core.h>

#include <filesystem>

#include "app/colours.h"
#include "arch/decoder.h"
#include "base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/end_ids.h"
#include "config/apply.h"
#include "report/svg.h"
#include "stream/feature_dir.h"
#include "tool/text_account.h"

namespace sf::tool {
namespace {

constexpr const char* kGreen = "\x1b[1;32m";
constexpr const char* kPlain = "\x1b[0m";

struct Run {
  bool marked = false;
  std::string text;
};

// Tokens in a row of one kind, as they are spelled; a character whose bytes lie in several runs stays broken.
std::vector<Run> runs_of(const text::Tokenizer& tokenizer, std::span<const int32_t> ids,
                         std::span<const uint8_t> mask) {
  std::vector<Run> runs;
  for (size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    while (end < ids.size() && (mask[end] != 0) == (mask[begin] != 0)) ++end;
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(begin),
               last = ids.begin() + static_cast<std::ptrdiff_t>(end);
    runs.push_back({mask[begin] != 0, tokenizer.decode({first, last})});
  }
  return runs;
}

std::string harmless(std::string_view text) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out;
}

std::vector<text::ChatRow> rows_of_chats(app::Invocation& invocation, const std::string& file,
                                         const text::ChatEncoder& encoder) {
  config::Apply shown(invocation.settings(), "every row", "text");
  const auto most = static_cast<size_t>(shown.whole("capture.max_length"));
  const bool turn = shown.word("capture.mask_rule") == "turn";
  return text::read_chats(file, encoder, turn ? text::MaskRule::kTurn : text::MaskRule::kReference, most);
}

std::vector<text::ChatRow> rows_of_features(app::Invocation& invocation, const std::filesystem::path& dir,
                                            const text::ChatEncoder& encoder) {
  config::Apply without(invocation.settings(), "0 rows (the features hold their masks)", "text");
  for (const char* key : {"capture.max_length", "capture.mask_rule"}) without.nothing(key);
  stream::Contract wanted;
  wanted.tokenizer = encoder.tokenizer_digest();
  auto source = stream::DirSource::open(dir, wanted);
  std::vector<text::ChatRow> rows;
  for (uint64_t i = 0; i < source->present(); ++i) {
    const stream::Sample sample = source->row_at(i);
    text::ChatRow row{.row = sample.row, .id = fmt::format("row-{}", sample.row)};
    if (sample.void_reason) {
      row.rejected = *sample.void_reason;
    } else {
      auto ids = sample.at("input_ids").as<int32_t>();
      auto mask = sample.at("loss_mask").as<uint8_t>();
      SF_CHECK(ids.size() == mask.size(), Exit::kData, "{}: row {}: {} ids and {} of a mask", dir.string(), sample.row,
               ids.size(), mask.size());
      for (int32_t id : ids)
        SF_CHECK(id >= 0 && id < encoder.tokenizer().vocab_size(), Exit::kData, "{}: row {}: id {} is no token's",
                 dir.string(), sample.row, id);
      row.encoded.ids.assign(ids.begin(), ids.end());
      row.encoded.loss_mask.assign(mask.begin(), mask.end());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string heading(const text::ChatRow& row) {
  if (!row.rejected.empty()) return fmt::format("row {} (id {}): void: {}", row.row, row.id, row.rejected);
  return fmt::format("row {} (id {}): {} of {} tokens supervised{}", row.row, row.id, row.encoded.supervised(),
                     row.encoded.ids.size(),
                     row.encoded.cut ? fmt::format(", {} cut behind the last", row.encoded.cut) : "");
}

}  // namespace

std::string masked_text(const text::Tokenizer& tokenizer, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                        bool colours) {
  std::string out;
  for (const Run& run : runs_of(tokenizer, ids, mask)) {
    const std::string text = harmless(run.text);
    if (!run.marked)
      out += text;
    else
      out += colours ? kGreen + text + kPlain : "⟦" + text + "⟧";
  }
  return out;
}

std::string masked_html(const text::Tokenizer& tokenizer, std::span<const int32_t> ids, std::span<const uint8_t> mask) {
  std::string out = "<pre>";
  for (const Run& run : runs_of(tokenizer, ids, mask)) {
    const std::string text = report::escaped(harmless(run.text));
    out += run.marked ? "<mark>" + text + "</mark>" : text;
  }
  return out + "</pre>\n";
}

namespace {

Json shown(const text::Tokenizer& tokenizer, const text::ChatRow& row) {
  Json json = Json::object().set("row", row.row).set("id", row.id);
  if (!row.rejected.empty()) return json.set("void", row.rejected);
  const text::EncodedChat& chat = row.encoded;
  json.set("tokens", std::ssize(chat.ids)).set("supervised_tokens", static_cast<int64_t>(chat.supervised()));
  json.set("tokens_left_out", static_cast<int64_t>(chat.cut));
  Json parts = Json::array();
  for (const Run& run : runs_of(tokenizer, chat.ids, chat.loss_mask))
    parts.push(Json::object().set("supervised", run.marked).set("text", run.text));
  return json.set("parts", std::move(parts));
}

}  // namespace

int show_mask(app::Invocation& invocation) {
  const std::string what = invocation.positional().front();
  const bool page = invocation.has("html");
  SF_CHECK(!page || !invocation.json_output(), Exit::kUsage, "--html is a page and --format json a record; give one");
  SF_CHECK(std::filesystem::exists(what), Exit::kNoInput, "{}: no such file or directory", what);
  const ckpt::Checkpoint target = ckpt::Checkpoint::open(invocation.get("target"));
  const text::ChatEncoder encoder = text::ChatEncoder::open(target.dir());
  std::vector<text::ChatRow> rows = std::filesystem::is_directory(what) ? rows_of_features(invocation, what, encoder)
                                                                        : rows_of_chats(invocation, what, encoder);
  app::settle_settings(invocation);
  const arch::Decoder decoder = arch::decoder_from_config(target.config());
  const TextAccount account = account_of(rows, ckpt::end_ids_of(target.dir(), decoder));
  if (invocation.json_output()) {
    Json list = Json::array();
    for (const text::ChatRow& row : rows) list.push(shown(encoder.tokenizer(), row));
    invocation.result(Json::object().set("rows", std::move(list)).set("text", account.to_json()).dump());
    return 0;
  }
  if (page)
    invocation.result(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Supervised tokens</title>\n"
        "<style>body{max-width:60em;margin:2em auto;font-family:sans-serif}pre{white-space:pre-wrap}"
        "mark{background:#bfe8bf}</style>");
  for (const text::ChatRow& row : rows) {
    const text::EncodedChat& chat = row.encoded;
    const std::string head = harmless(heading(row));
    invocation.result(page ? "<h2>" + report::escaped(head) + "</h2>" : head);
    if (!row.rejected.empty()) continue;
    invocation.result(
        page ? masked_html(encoder.tokenizer(), chat.ids, chat.loss_mask)
             : masked_text(encoder.tokenizer(), chat.ids, chat.loss_mask, app::result_has_colours(invocation)));
  }
  invocation.result(page ? "<p>" + report::escaped(account.line()) + "</p>\n</html>" : account.line());
  return 0;
}

}  // namespace sf::tool
