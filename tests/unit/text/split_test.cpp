// SPDX-License-Identifier: Apache-2.0
#include "text/split.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "text/unicode.h"
#include "tiny.h"

namespace sf::text {
namespace {

std::vector<std::string> pieces(const PreTokenizer& splitter, const std::string& text) {
  Pieces out;
  splitter.split(text, out);
  return {out.list.begin(), out.list.end()};
}

std::vector<std::string> pieces(const SplitStage& stage, const std::string& text) {
  Pieces out;
  out.list.push_back(text);
  stage.apply(out);
  return {out.list.begin(), out.list.end()};
}

PreTokenizer from(std::vector<Json> stages) {
  return PreTokenizer::from_json(
      tiny::object({{"type", "Sequence"}, {"pretokenizers", Json(Json::Array(std::move(stages)))}}), "test");
}
Json split_json(const char* pattern, const char* behaviour, bool invert = false) {
  return tiny::object({{"type", "Split"},
                       {"pattern", tiny::object({{"String", pattern}})},
                       {"behavior", behaviour},
                       {"invert", invert}});
}

using Strings = std::vector<std::string>;

class Pattern : public testing::TestWithParam<std::string_view> {};

TEST_P(Pattern, TheScannerCutsAsTheRegularExpressionDoes) {
  auto scanner = isolate(GetParam(), true, "test"), regex = isolate(GetParam(), false, "test");
  // Code points whose classes both libraries know alike (assigned before Unicode 14).
  const std::vector<std::string> alphabet = {
      "a",      "S",      "t",      "D",      "'",          "'",          "l",      "L",      "r",
      "e",      "V",      "1",      "2",      " ",          " ",          "\n",     "\r",     "\t",
      ".",      "_",      "$",      "\u00a0", "\u3000",     "\u0301",     "\u00e9", "\u017f", "\u4f60",
      "\u3007", "\u2163", "\u00b2", "\u0e31", "\u0915",     "\u094d",     "\u200b", "\u180e", "\u0085",
      "\u2028", "\ufeff", "\u01c5", "\u02b0", "\U0001F600", "\U0001D7D7", "\u20dd", "\u203f", std::string(1, '\0'),
      "\x1c",   "\x0b"};
  Rng rng(5, "split");
  for (uint64_t i = 0; i < 4000; ++i) {
    std::string text;
    for (uint64_t k = 0; k <= i % 17; ++k) text += alphabet[rng.below(alphabet.size(), i, k)];
    ASSERT_EQ(pieces(*scanner, text), pieces(*regex, text)) << Json(text).dump();
  }
}
INSTANTIATE_TEST_SUITE_P(Published, Pattern,
                         testing::Values(kGpt2Pattern, kQwen2Pattern, kLlama3Pattern, kQwen35Pattern));

TEST(Qwen2Pattern, CutsTheKnownTrickyTexts) {
  const std::pair<const char*, Strings> cases[] = {
      {"'\u017fun", {"'\u017f", "un"}},
      {"IT'STUFF", {"IT", "'S", "TUFF"}},
      {"x'lla", {"x", "'ll", "a"}},
      {"a \u00a0 b", {"a", " \u00a0", " b"}},
      {"\u3000\u3000x", {"\u3000", "\u3000x"}},
      {"a\r\n  b", {"a", "\r\n", " ", " b"}},
      {"  a\n\n\n  b\n", {" ", " a", "\n\n\n", " ", " b", "\n"}},
      {"\n \n x", {"\n \n", " x"}},
      {"a.\r\n\r\nb", {"a", ".\r\n\r\n", "b"}},
      {" 'tis", {" '", "tis"}},
      {"\t'm", {"\t", "'m"}},
      {"__a", {"__", "a"}},
      {"(\u0301 a", {"(\u0301", " a"}},
      {"a\u0301b", {"a", "\u0301b"}},
      {"$5$x$", {"$", "5", "$x", "$"}},
  };
  auto scanner = isolate(kQwen2Pattern, true, "test"), regex = isolate(kQwen2Pattern, false, "test");
  for (const auto& [text, wanted] : cases) {
    EXPECT_EQ(pieces(*scanner, text), wanted) << text;
    EXPECT_EQ(pieces(*regex, text), wanted) << text;
  }
}

TEST(Split, AnotherPatternRunsAsARegularExpression) {
  Json split = tiny::object({{"type", "Split"},
                             {"pattern", tiny::object({{"Regex", R"(\p{N}{1,3}|\s)"}})},
                             {"behavior", "Isolated"},
                             {"invert", false}});
  EXPECT_EQ(pieces(from({split, tiny::byte_level(false)}), "ab1234 c"), (Strings{"ab", "123", "4", " ", "c"}));
}

TEST(Split, KnowsAllBehaviours) {
  const std::pair<const char*, Strings> cases[] = {{"Isolated", {"a", "-", "-", "b", "-"}},
                                                   {"Removed", {"a", "b"}},
                                                   {"MergedWithPrevious", {"a-", "-", "b-"}},
                                                   {"MergedWithNext", {"a", "-", "-b", "-"}},
                                                   {"Contiguous", {"a", "--", "b", "-"}}};
  for (const auto& [behaviour, wanted] : cases)
    EXPECT_EQ(pieces(from({split_json("-", behaviour), tiny::byte_level(false)}), "a--b-"), wanted) << behaviour;
  EXPECT_EQ(pieces(from({split_json("-", "Removed", true), tiny::byte_level(false)}), "a--b-"),
            (Strings{"-", "-", "-"}));
}

TEST(Split, APatternInQuotesIsTakenLiterally) {
  EXPECT_EQ(pieces(from({split_json("a.[", "Isolated"), tiny::byte_level(false)}), "xa.[yabz"),
            (Strings{"x", "a.[", "yabz"}));
}

TEST(Digits, StandAloneOrTogether) {
  auto digits = [](bool individual) { return tiny::object({{"type", "Digits"}, {"individual_digits", individual}}); };
  EXPECT_EQ(pieces(from({digits(true), tiny::byte_level(false)}), "a12\u2163b"),
            (Strings{"a", "1", "2", "\u2163", "b"}));
  EXPECT_EQ(pieces(from({digits(false), tiny::byte_level(false)}), "a12\u2163b"), (Strings{"a", "12\u2163", "b"}));
}

TEST(Digits, APieceDoesNotLookBeyondItsEnds) {
  // Alone, "a  " keeps its two spaces together; before a digit in one text they would part.
  PreTokenizer splitter =
      from({tiny::object({{"type", "Digits"}, {"individual_digits", true}}), tiny::byte_level(true)});
  EXPECT_EQ(pieces(splitter, "a  1"), (Strings{"a", "  ", "1"}));
}

TEST(ByteLevel, PutsASpaceInFrontOnRequest) {
  Json stage = tiny::byte_level(true);
  stage.set("add_prefix_space", true);
  EXPECT_EQ(pieces(from({stage}), "a b"), (Strings{" a", " b"}));
  EXPECT_EQ(pieces(from({stage}), " a"), (Strings{" a"}));
}

TEST(Unicode, MongolianVowelSeparatorIsNoWhiteSpace) {
  for (bool scanner : {true, false})
    EXPECT_EQ(pieces(*isolate(kGpt2Pattern, scanner, "test"), "\u180e \u180e"), (Strings{"\u180e", " \u180e"}));
}

TEST(Unicode, NfcQuickCheckNeverMissesAChange) {
  // Every code point alone and behind a letter: where the check sees no need, a full normalisation changes nothing.
  for (char32_t c = 0x80; c < 0x30000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = to_utf8(std::u32string{U'a', c});
    if (may_need_nfc(text)) continue;
    std::string forced = nfc(text + "e\u0301");
    ASSERT_EQ(forced, text + "\u00e9") << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(Unicode, BrokenUtf8BecomesOneReplacementAMaximalSubpart) {
  EXPECT_EQ(replace_invalid("a\xf0\x9f\x98z"), "a\ufffdz");
  EXPECT_EQ(replace_invalid("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(replace_invalid("\xc0\x80\xff"), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(replace_invalid("\xe2\x82\xe2\x82\xac"), "\ufffd\u20ac");
}

TEST(ByteAlphabet, IsOneToOneAndMatchesTheKnownEntries) {
  EXPECT_EQ(byte_alphabet()[' '], U'\u0120');
  EXPECT_EQ(byte_alphabet()['\n'], U'\u010a');
  EXPECT_EQ(byte_alphabet()[0x7F], U'\u0121');
  EXPECT_EQ(byte_alphabet()[0xAD], U'\u0143');
  std::string all, back;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_TRUE(token_to_bytes(bytes_to_token(all), back));
  EXPECT_EQ(back, all);
  EXPECT_FALSE(token_to_bytes("a b", back));
  EXPECT_EQ(back, "a b");
}

}  // namespace
}  // namespace sf::text
