// SPDX-License-Identifier: Apache-2.0
#include "ckpt/end_ids.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "scratch.h"

namespace sf::ckpt {
namespace {

arch::Decoder model() {
  arch::Decoder decoder;
  decoder.vocab = 100;
  decoder.eos = {7};
  return decoder;
}

TEST(EndIds, AreThoseOfTheGenerationSettingsElseOfTheConfig) {
  Scratch scratch;
  EXPECT_EQ(end_ids_of(scratch / ".", model()), (std::vector<int32_t>{7}));
  write_atomic(scratch / "generation_config.json", R"({"eos_token_id": [3, 99]})");
  EXPECT_EQ(end_ids_of(scratch / ".", model()), (std::vector<int32_t>{3, 99}));
  write_atomic(scratch / "generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(end_ids_of(scratch / ".", model()), (std::vector<int32_t>{7}));
}

TEST(EndIds, OutsideTheVocabularyAreRefusedNamingTheFile) {
  for (const char* id : {"100", "-1", "[3, 4294967297]", "\"3\"", "2.5"}) {
    Scratch scratch;
    write_atomic(scratch / "generation_config.json", "{\"eos_token_id\": " + std::string(id) + "}");
    EXPECT_NE(
        refusal(Exit::kData, [&] { end_ids_of(scratch / ".", model()); }).find("generation_config.json: eos_token_id"),
        std::string::npos)
        << id;
  }
  Scratch scratch;
  write_atomic(
      scratch / "tokenizer_config.json",
      R"({"eos_token": {"content": "<e>"}, "added_tokens_decoder": {"5": {"content": "<a>"}, "100": {"content": "<e>"}}})");
  EXPECT_NE(refusal(Exit::kData, [&] { end_ids_of(scratch / ".", model()); }).find("tokenizer_config.json: eos_token"),
            std::string::npos);
}

}  // namespace
}  // namespace sf::ckpt
