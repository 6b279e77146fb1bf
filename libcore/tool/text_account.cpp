// SPDX-License-Identifier: Apache-2.0
#include "tool/text_account.h"

#include <fmt/core.h>

#include <algorithm>

namespace sf::tool {
namespace {

void count_answers(TextAccount& account, const text::EncodedChat& chat, std::span<const int32_t> end_ids) {
  const std::vector<uint8_t>& mask = chat.loss_mask;
  for (size_t at = 0; at < mask.size();) {
    if (!mask[at]) {
      ++at;
      continue;
    }
    bool stopped = false;
    for (; at < mask.size() && mask[at]; ++at) stopped |= std::ranges::find(end_ids, chat.ids[at]) != end_ids.end();
    ++account.answers;
    account.stopped += stopped;
    account.open += !stopped && at == mask.size() && chat.cut > 0;
  }
}

}  // namespace

TextAccount account_of(std::span<const text::ChatRow> rows, std::span<const int32_t> end_ids) {
  TextAccount account{.rows = std::ssize(rows), .knows_stop = !end_ids.empty()};
  for (const text::ChatRow& row : rows) {
    if (!row.rejected.empty()) {
      ++account.rejected;
      account.unsupervised += row.rejected == text::kNoSupervisedToken;
      continue;
    }
    ++account.kept;
    account.truncated += row.encoded.cut > 0;
    account.left_out += static_cast<int64_t>(row.encoded.cut);
    account.tokens += std::ssize(row.encoded.ids);
    account.supervised += static_cast<int64_t>(row.encoded.supervised());
    count_answers(account, row.encoded, end_ids);
  }
  return account;
}

std::string TextAccount::line() const {
  std::string stops = knows_stop ? fmt::format("the stop token is supervised in {} of {} answers", stopped, answers)
                                 : fmt::format("{} answers, the target names no stop token", answers);
  if (open > 0) stops += fmt::format(" ({} cut before theirs)", open);
  return fmt::format(
      "text: {} rows in, {} kept ({} truncated, {} tokens left out), {} rejected ({} without a supervised token); "
      "{} of {} tokens supervised; {}",
      rows, kept, truncated, left_out, rejected, unsupervised, supervised, tokens, stops);
}

std::string TextAccount::warning() const {
  if (!knows_stop || stopped > 0 || answers == 0) return "";
  return fmt::format(
      "none of {} answers has a supervised stop token: a draft learns no end of an answer; sf-capture inspect --mask "
      "shows what is supervised",
      answers);
}

Json TextAccount::to_json() const {
  return Json::object()
      .set("rows", rows)
      .set("kept", kept)
      .set("truncated", truncated)
      .set("tokens_left_out", left_out)
      .set("rejected", rejected)
      .set("without_supervised_token", unsupervised)
      .set("tokens", tokens)
      .set("supervised_tokens", supervised)
      .set("answers", answers)
      .set("stop_token_supervised", knows_stop ? Json(stopped) : Json())
      .set("answers_cut", open);
}

}  // namespace sf::tool
