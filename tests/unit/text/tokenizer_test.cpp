// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "tiny.h"

namespace sf::text {
namespace {

using Ids = std::vector<int32_t>;

Tokenizer make(const Json& json) {
  return Tokenizer::from_json(json, "tiny");
}

// The message of the kData refusal; anything else fails the test.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}
std::string refusal_of(const Json& json) {
  return refusal([&] { make(json); });
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A string of `length` characters drawn from `alphabet`.
std::string draw(const Rng& rng, uint64_t index, const std::vector<std::string>& alphabet, size_t length) {
  std::string out;
  for (size_t i = 0; i < length; ++i) out += alphabet[rng.below(alphabet.size(), index, i)];
  return out;
}

// Merging as the definition says it: of all adjacent pairs the one of lowest rank, the leftmost of equals.
Ids merged_plainly(const std::string& piece, const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> parts;
  for (char c : piece) parts.emplace_back(1, c);
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t i = 0; i < merges.size(); ++i) ranks.emplace(merges[i], i);
  while (true) {
    size_t best = merges.size(), where = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      auto found = ranks.find({parts[i], parts[i + 1]});
      if (found != ranks.end() && found->second < best) best = found->second, where = i;
    }
    if (best == merges.size()) break;
    parts[where] += parts[where + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(where) + 1);
  }
  std::map<std::string, int32_t> ids;
  for (int b = 0; b < 256; ++b) ids.emplace(std::string(1, static_cast<char>(b)), b);
  for (size_t i = 0; i < merges.size(); ++i) ids[merges[i].first + merges[i].second] = static_cast<int32_t>(256 + i);
  Ids out;
  for (const auto& part : parts) out.push_back(ids.at(part));
  return out;
}

TEST(Bpe, TheLeftmostOfEqualPairsMergesFirst) {
  Tokenizer tokenizer = make(tiny::tokenizer({{"a", "a"}}));
  EXPECT_EQ(tokenizer.encode("aaa"), (Ids{256, 'a'}));
}

TEST(Bpe, PiecesOfEveryLengthMergeAsTheDefinitionSays) {
  std::vector<std::pair<std::string, std::string>> merges = {{"a", "b"},   {"b", "a"},  {"a", "a"},   {"ab", "a"},
                                                             {"b", "b"},   {"aa", "b"}, {"ab", "ab"}, {"aba", "b"},
                                                             {"bb", "ab"}, {"aa", "aa"}};
  Tokenizer tokenizer = make(tiny::tokenizer(merges));
  Rng rng(1, "pieces");
  for (size_t length = 1; length <= 120; ++length)
    for (uint64_t i = 0; i < 5; ++i) {
      std::string piece = draw(rng, length * 8 + i, {"a", "b"}, length);
      ASSERT_EQ(tokenizer.encode(piece), merged_plainly(piece, merges)) << piece;
      ASSERT_EQ(tokenizer.encode(piece), merged_plainly(piece, merges)) << "the second time: " << piece;
    }
}

TEST(Bpe, APieceOfAMegabyteOfOneLetterTakesNoQuadraticTime) {
  Tokenizer tokenizer = make(tiny::tokenizer({{"a", "a"}, {"aa", "aa"}}));
  EXPECT_EQ(tokenizer.encode(std::string(1 << 18, 'a')), Ids(1 << 16, 257));
}

TEST(Bpe, TwoTokenizersOfOneThreadDoNotShareTheirMemoryOfPieces) {
  Tokenizer one = make(tiny::tokenizer({{"a", "b"}})), other = make(tiny::tokenizer({{"x", "y"}, {"a", "b"}}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(one.encode("ab"), Ids{256});
    EXPECT_EQ(other.encode("ab"), Ids{257});
  }
}

TEST(Bpe, IgnoreMergesTakesAWholePieceFromTheVocabulary) {
  Json json = tiny::tokenizer({{"b", "c"}, {"a", "b"}});
  Json& model = json.as_object().back().second;
  Json vocab = model.at("vocab");
  vocab.set("abc", 300);  // no merge makes it: "bc" merges first
  model.set("vocab", vocab);
  EXPECT_EQ(make(json).encode("abc"), (Ids{'a', 256}));
  model.set("ignore_merges", true);
  EXPECT_EQ(make(json).encode("abc"), Ids{300});
}

TEST(Bpe, AByteTheVocabularyLacksIsLeftOut) {
  Json json = tiny::tokenizer();
  Json vocab = Json::object();
  for (const auto& [token, id] : json.at("model").at("vocab").as_object())
    if (token != "z") vocab.set(token, id);
  json.as_object().back().second.set("vocab", vocab);
  EXPECT_EQ(make(json).encode("azb"), (Ids{'a', 'b'}));
}

TEST(Bpe, MergesReadAsLinesAndAsPairsAlike) {
  Json json = tiny::tokenizer({{" ", "a"}});
  Json lines = Json::array();
  lines.push("#version: 0.2");
  lines.push(bytes_to_token(" ") + " a");
  Json old = json;
  old.as_object().back().second.set("merges", lines);
  EXPECT_EQ(make(json).encode(" a"), Ids{256});
  EXPECT_EQ(make(old).encode(" a"), Ids{256});
}

TEST(Tokenizer, NormalisesToNfcWhereTheFileSaysSo) {
  Json json = tiny::tokenizer();
  EXPECT_EQ(make(json).encode("e\u0301"), make(json).encode("\u00e9"));
  EXPECT_EQ(make(json).encode("\u1100\u1161\u212b"), make(json).encode("\uac00\u00c5"));
  json.set("normalizer", nullptr);
  EXPECT_NE(make(json).encode("e\u0301"), make(json).encode("\u00e9"));
}

TEST(Tokenizer, FindsTheLongestAddedTokenFirst) {
  Json json = tiny::tokenizer();
  json.set("added_tokens", Json(Json::Array{tiny::added(300, "<a>"), tiny::added(301, "<a>b"), tiny::added(302, "")}));
  EXPECT_EQ(make(json).encode("<a>b<a>c<a"), (Ids{301, 300, 'c', '<', 'a'}));
}

TEST(Tokenizer, AddedTokensStripWhiteSpaceAndKeepToWords) {
  Json json = tiny::tokenizer();
  Json left = tiny::added(300, "<l>"), right = tiny::added(301, "<r>"), word = tiny::added(302, "cat");
  left.set("lstrip", true);
  right.set("rstrip", true);
  word.set("single_word", true);
  json.set("added_tokens", Json(Json::Array{left, right, word}));
  Tokenizer tokenizer = make(json);
  EXPECT_EQ(tokenizer.encode("a \n<l> b"), (Ids{'a', 300, ' ', 'b'}));
  EXPECT_EQ(tokenizer.encode("a <r> \u3000b"), (Ids{'a', ' ', 301, 'b'}));
  EXPECT_EQ(tokenizer.encode("<r> <l>"), (Ids{301, 300}));
  EXPECT_EQ(tokenizer.encode("cat"), Ids{302});
  EXPECT_EQ(tokenizer.encode("a cat."), (Ids{'a', ' ', 302, '.'}));
  EXPECT_EQ(tokenizer.encode("cats").size(), 4u);
  EXPECT_EQ(tokenizer.encode("_cat").size(), 4u);
}

TEST(Tokenizer, NormalizedAddedTokensMatchTheNormalisedText) {
  Json json = tiny::tokenizer();
  Json token = tiny::added(300, "\u00e9!");
  token.set("normalized", true);
  json.set("added_tokens", Json(Json::Array{token}));
  EXPECT_EQ(make(json).encode("ae\u0301!b"), (Ids{'a', 300, 'b'}));
  token.set("normalized", false);
  json.set("added_tokens", Json(Json::Array{token}));
  EXPECT_NE(make(json).encode("ae\u0301!b"), (Ids{'a', 300, 'b'}));
}

TEST(Tokenizer, AnAddedTokenOfTheVocabularyKeepsItsId) {
  Json json = tiny::tokenizer({{"a", "b"}});
  json.set("added_tokens", Json(Json::Array{tiny::added(900, "ab")}));
  Tokenizer tokenizer = make(json);
  EXPECT_EQ(tokenizer.encode("ab"), Ids{256});
  EXPECT_TRUE(tokenizer.is_special(256));
  EXPECT_EQ(tokenizer.vocab_size(), 257);
}

TEST(Tokenizer, ThePostProcessorAddsTokensOnRequestOnly) {
  Json json = tiny::tokenizer();
  Json bos = tiny::object({{"SpecialToken", tiny::object({{"id", "<|im_start|>"}, {"type_id", 0}})}});
  Json text = tiny::object({{"Sequence", tiny::object({{"id", "A"}, {"type_id", 0}})}});
  Json eos = tiny::object({{"SpecialToken", tiny::object({{"id", "<|im_end|>"}, {"type_id", 0}})}});
  Json names = tiny::object({{"<|im_start|>", tiny::object({{"ids", Json(Json::Array{256})}})},
                             {"<|im_end|>", tiny::object({{"ids", Json(Json::Array{257})}})}});
  Json processor = tiny::object(
      {{"type", "TemplateProcessing"}, {"single", Json(Json::Array{bos, text, eos})}, {"special_tokens", names}});
  json.set("post_processor",
           tiny::object({{"type", "Sequence"},
                         {"processors", Json(Json::Array{tiny::object({{"type", "ByteLevel"}}), processor})}}));
  Tokenizer tokenizer = make(json);
  EXPECT_EQ(tokenizer.encode("a"), Ids{'a'});
  EXPECT_EQ(tokenizer.encode("a", true), (Ids{256, 'a', 257}));
  EXPECT_EQ(tokenizer.encode("", true), (Ids{256, 257}));
}

TEST(Tokenizer, NamesItsTokensBothWays) {
  Tokenizer tokenizer = make(tiny::tokenizer({{" ", "a"}}));
  EXPECT_EQ(tokenizer.id_of("<|im_end|>"), 258);
  EXPECT_EQ(tokenizer.id_of(bytes_to_token(" a")), 256);
  EXPECT_EQ(tokenizer.id_of("absent"), -1);
  EXPECT_EQ(tokenizer.bytes_of(256), " a");
  EXPECT_EQ(tokenizer.decode({257, 'x', 258, 9999}), "<|im_start|>x<|im_end|>");
  EXPECT_EQ(tokenizer.decode({257, 'x', 258}, true), "x");
  EXPECT_TRUE(holds(refusal([&] { tokenizer.bytes_of(259); }), "259"));
  EXPECT_TRUE(holds(refusal([&] { tokenizer.bytes_of(-1); }), "-1"));
}

TEST(Tokenizer, DecodingWhatWasEncodedGivesTheTextForAllValidUtf8) {
  Json json = tiny::tokenizer({{"t", "h"}, {"th", "e"}, {" ", "the"}, {"\xf0", "\x9f"}, {"\xf0\x9f", "\x98"}});
  json.set("normalizer", nullptr);
  Tokenizer tokenizer = make(json);
  std::vector<std::string> alphabet = {"t",
                                       "h",
                                       "e",
                                       " ",
                                       "\n",
                                       "1",
                                       "'s",
                                       "\u00e9",
                                       "\u0301",
                                       "\u4f60",
                                       "\u3000",
                                       "\U0001F600",
                                       std::string(1, '\0'),
                                       "\x7f",
                                       "\ufffd",
                                       "<|im_end|>",
                                       "<|im",
                                       "\u180e",
                                       "\U0010FFFF"};
  Rng rng(2, "round trip");
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string text = draw(rng, i, alphabet, i % 40);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefusedWithTheByte) {
  Tokenizer tokenizer = make(tiny::tokenizer());
  for (const char* broken : {"ab\xff", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80", "ab\xe2\x82"})
    EXPECT_TRUE(holds(refusal([&] { tokenizer.encode(broken); }), "byte 2")) << broken;
}

TEST(StreamDecoder, GivesPieceByPieceWhatDecodeGivesWhole) {
  Tokenizer tokenizer = make(tiny::tokenizer());
  Rng rng(3, "bytes");
  // Bytes of every kind: leads, continuations, ASCII, and what never occurs.
  const int32_t bytes[] = {'a', 0xC3, 0xA9, 0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0x98, 0x80, 0xFF, 0xED, 0xF4, 256, 9999, -1};
  for (uint64_t i = 0; i < 4000; ++i) {
    Ids ids;
    for (uint64_t k = 0; k < i % 12; ++k) ids.push_back(bytes[rng.below(std::size(bytes), i, k)]);
    StreamDecoder stream(tokenizer);
    std::string joined;
    for (int32_t id : ids) joined += stream.push(id);
    joined += stream.finish();
    ASSERT_EQ(joined, tokenizer.decode(ids));
  }
}

TEST(StreamDecoder, HoldsBackAnUnfinishedCharacter) {
  Tokenizer tokenizer = make(tiny::tokenizer());
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(0xC3), "");
  EXPECT_EQ(stream.push(0xA9), "\u00e9");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TokenizerFile, AnUnknownStageIsRefusedByName) {
  auto with = [](const char* key, Json value) {
    Json json = tiny::tokenizer();
    json.set(key, std::move(value));
    return refusal_of(json);
  };
  Json strange = tiny::object({{"type", "Strange"}});
  Json nested = tiny::object({{"type", "Sequence"}, {"pretokenizers", Json(Json::Array{strange})}});
  EXPECT_TRUE(holds(with("pre_tokenizer", nested), "pre_tokenizer.pretokenizers[0]: pre-tokenizer \"Strange\""));
  EXPECT_TRUE(holds(with("normalizer", tiny::object({{"type", "NFKC"}})), "\"NFKC\""));
  EXPECT_TRUE(holds(with("post_processor", strange), "\"Strange\""));
  EXPECT_TRUE(holds(with("decoder", strange), "\"Strange\""));
  EXPECT_TRUE(holds(with("decoder", nullptr), "decoder"));
  EXPECT_TRUE(holds(with("pre_tokenizer", nullptr), "pre_tokenizer"));
  EXPECT_TRUE(holds(with("pre_tokenizer", tiny::object({{"type", "Digits"}})), "ByteLevel"));
  EXPECT_TRUE(holds(with("model", tiny::object({{"type", "WordPiece"}, {"vocab", Json::object()}})), "\"WordPiece\""));
  Json split =
      tiny::object({{"type", "Split"}, {"pattern", tiny::object({{"Regex", "a(b"}})}, {"behavior", "Isolated"}});
  EXPECT_TRUE(holds(with("pre_tokenizer", split), "pattern"));
  split.set("behavior", "Odd");
  EXPECT_TRUE(holds(with("pre_tokenizer", split), "\"Odd\""));
}

TEST(TokenizerFile, IdsOutOfRangeOrTakenAreRefused) {
  auto with_vocab = [](const char* token, int64_t id) {
    Json json = tiny::tokenizer();
    Json vocab = json.at("model").at("vocab");
    vocab.set(token, id);
    json.as_object().back().second.set("vocab", vocab);
    return refusal_of(json);
  };
  EXPECT_TRUE(holds(with_vocab("new", -1), "out of range"));
  EXPECT_TRUE(holds(with_vocab("new", int64_t{1} << 40), "out of range"));
  EXPECT_TRUE(holds(with_vocab("new", 2'000'000'000), "out of range"));
  EXPECT_TRUE(holds(with_vocab("new", 65), "belongs to both"));
  auto with_added = [](int64_t id) {
    Json json = tiny::tokenizer();
    json.set("added_tokens", Json(Json::Array{tiny::added(id, "<new>")}));
    return refusal_of(json);
  };
  EXPECT_TRUE(holds(with_added(-5), "out of range"));
  EXPECT_TRUE(holds(with_added(2'000'000'000), "out of range"));
  EXPECT_TRUE(holds(with_added(65), "belongs to"));
}

TEST(TokenizerFile, AMergeOutsideTheVocabularyIsRefused) {
  for (const char* merge : {"q zz", "a  b", "ab", "a b c"}) {
    Json json = tiny::tokenizer();
    json.as_object().back().second.set("merges", Json(Json::Array{Json(merge)}));
    EXPECT_TRUE(holds(refusal_of(json), "merges[0]")) << merge;
  }
}

TEST(TokenizerFile, ATruncatedFileIsBadDataWithItsName) {
  std::string whole = tiny::tokenizer({{"a", "b"}}).dump();
  tiny::ModelDir dir(tiny::tokenizer(), "");
  for (size_t size = 0; size < whole.size(); size += whole.size() / 40 + 1) {
    auto file = dir.write("cut.json", whole.substr(0, size));
    EXPECT_TRUE(holds(refusal([&] { Tokenizer::open(file); }), "cut.json")) << size;
  }
}

TEST(TokenizerFile, DamageAnywhereIsRefusedOrHarmlessNeverACrash) {
  std::string whole = tiny::tokenizer({{"a", "b"}}).dump();
  size_t start = whole.find("\"pre_tokenizer\"");
  Rng rng(4, "damage");
  const uint64_t rounds = std::getenv("SF_SOAK") ? 100'000 : 400;
  uint64_t refused = 0;
  for (uint64_t i = 0; i < rounds; ++i) {
    std::string damaged = whole;
    // Half of the damage goes to the short, telling parts before and behind the vocabulary.
    size_t at = i % 2 ? rng.below(damaged.size(), i) : (start + rng.below(260, i)) % damaged.size();
    damaged[at] = static_cast<char>(rng.below(96, i, 1) + 32);
    try {
      Tokenizer tokenizer = make(Json::parse(damaged, "damaged"));
      tokenizer.decode(tokenizer.encode("ab <|im_end|> 12"));
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Exit::kData) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 4);
}

}  // namespace
}  // namespace sf::text
