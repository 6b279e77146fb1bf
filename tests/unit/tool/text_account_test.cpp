// SPDX-License-Identifier: Apache-2.0
#include "tool/text_account.h"

#include <gtest/gtest.h>

#include "../text/tiny.h"
#include "tool/show_mask.h"

namespace sf::tool {
namespace {

constexpr int32_t kStop = 9;

text::ChatRow row(std::vector<int32_t> ids, std::vector<uint8_t> mask, size_t cut = 0) {
  text::ChatRow made{.row = 0, .id = "r"};
  made.encoded = {std::move(ids), std::move(mask), cut};
  return made;
}

std::vector<text::ChatRow> rows() {
  text::ChatRow mute{.row = 2, .id = "m", .rejected = text::kNoSupervisedToken},
      odd{.row = 3, .id = "o", .rejected = "no role"};
  return {row({1, 2, kStop, 4, 5, kStop}, {0, 1, 1, 0, 1, 1}), row({1, 2, 3}, {0, 1, 1}, 7), mute, odd};
}

TEST(TextAccount, CountsWhatIsKeptCutAndRejected) {
  const TextAccount account = account_of(rows(), std::vector<int32_t>{kStop});
  EXPECT_EQ(account.line(),
            "text: 4 rows in, 2 kept (1 truncated, 7 tokens left out), 2 rejected (1 without a supervised token); "
            "6 of 9 tokens supervised; the stop token is supervised in 2 of 3 answers (1 cut before theirs)");
  EXPECT_EQ(account.warning(), "");
  EXPECT_EQ(account.to_json().at("stop_token_supervised").as_int(), 2);
}

TEST(TextAccount, WarnsWhereNoAnswerEndsInTheStopToken) {
  EXPECT_NE(account_of(rows(), std::vector<int32_t>{8}).warning().find("none of 3 answers"), std::string::npos);
  const TextAccount unknown = account_of(rows(), {});
  EXPECT_EQ(unknown.warning(), "");
  EXPECT_NE(unknown.line().find("names no stop token"), std::string::npos);
  EXPECT_TRUE(unknown.to_json().at("stop_token_supervised").is_null());
}

TEST(Mask, StandsOutInATerminalWithoutColoursAndOnAPage) {
  const text::Tokenizer tokenizer = text::Tokenizer::from_json(text::tiny::tokenizer(), "tiny");
  std::vector<int32_t> ids = tokenizer.encode("a<b\x1b[31mc<|im_end|>");
  std::vector<uint8_t> mask(ids.size(), 1);
  mask[0] = 0;
  EXPECT_EQ(masked_text(tokenizer, ids, mask, false), "a⟦<b\\x1b[31mc<|im_end|>⟧");
  EXPECT_EQ(masked_text(tokenizer, ids, mask, true), "a\x1b[1;32m<b\\x1b[31mc<|im_end|>\x1b[0m");
  EXPECT_EQ(masked_html(tokenizer, ids, mask), "<pre>a<mark>&lt;b\\x1b[31mc&lt;|im_end|&gt;</mark></pre>\n");
}

}  // namespace
}  // namespace sf::tool
