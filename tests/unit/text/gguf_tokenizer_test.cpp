// SPDX-License-Identifier: Apache-2.0
#include "text/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "tiny.h"

namespace sf::text {
namespace {

GgufTokenizer source() {
  GgufTokenizer out;
  out.model = "gpt2";
  out.pre = "smollm";
  for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    out.tokens.push_back(control), out.token_types.push_back(3);
  for (int b = 0; b < 256; ++b)
    out.tokens.push_back(bytes_to_token(std::string(1, static_cast<char>(b)))), out.token_types.push_back(1);
  out.tokens.push_back(bytes_to_token("12")), out.token_types.push_back(1);
  out.tokens.push_back(bytes_to_token(" a")), out.token_types.push_back(1);
  out.tokens.push_back("<tool>"), out.token_types.push_back(4);
  out.merges = {"1 2", bytes_to_token(" ") + " a"};
  out.bos = 1, out.eos = 2, out.unknown = 0, out.padding = 2;
  out.chat_template = tiny::chatml();
  return out;
}

Exit code_of(const GgufTokenizer& broken) {
  try {
    tokenizer_json(broken);
    tokenizer_config_json(broken);
  } catch (const Error& error) {
    return error.code();
  }
  return Exit::kOk;
}

TEST(GgufTokenizer, RebuildsATokenizerWithItsSpecialTokens) {
  Tokenizer tokenizer = Tokenizer::from_json(tokenizer_json(source()), "rebuilt");
  EXPECT_EQ(tokenizer.encode("b a<|im_end|><tool>"), (std::vector<int32_t>{3 + 'b', 260, 2, 261}));
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_FALSE(tokenizer.is_special(261));
}

TEST(GgufTokenizer, ThePreTokenizerFollowsItsName) {
  GgufTokenizer gguf = source();
  auto ids = [&](const char* pre) {
    gguf.pre = pre;
    return Tokenizer::from_json(tokenizer_json(gguf), "rebuilt").encode("12").size();
  };
  EXPECT_EQ(ids("smollm"), 2u);
  EXPECT_EQ(ids("qwen2"), 2u);
  EXPECT_EQ(ids("llama-bpe"), 1u);
  EXPECT_EQ(ids("gpt-2"), 1u);
}

TEST(GgufTokenizer, TheRebuiltDirectoryEncodesChats) {
  tiny::ModelDir dir(tokenizer_json(source()), "");
  dir.write("tokenizer_config.json", tokenizer_config_json(source()).dump(2));
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  Json messages = Json(Json::Array{tiny::object({{"role", "user"}, {"content", "hi"}})});
  EXPECT_EQ(encoder.tokenizer().decode(encoder.encode_prompt(messages)),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(GgufTokenizer, AddBosBecomesAPostProcessor) {
  GgufTokenizer gguf = source();
  gguf.add_bos = true;
  Tokenizer tokenizer = Tokenizer::from_json(tokenizer_json(gguf), "rebuilt");
  EXPECT_EQ(tokenizer.encode("b", true), (std::vector<int32_t>{1, 3 + 'b'}));
  EXPECT_EQ(tokenizer.encode("b"), (std::vector<int32_t>{3 + 'b'}));
}

TEST(GgufTokenizer, WhatIsNotSupportedIsConfigurationAndWhatIsBrokenIsData) {
  GgufTokenizer gguf = source();
  gguf.model = "llama";
  EXPECT_EQ(code_of(gguf), Exit::kConfig);
  gguf = source(), gguf.pre = "deepseek-llm";
  EXPECT_EQ(code_of(gguf), Exit::kConfig);
  gguf = source(), gguf.token_types.pop_back();
  EXPECT_EQ(code_of(gguf), Exit::kData);
  gguf = source(), gguf.eos = 5000;
  EXPECT_EQ(code_of(gguf), Exit::kData);
  gguf = source(), gguf.tokens[5] = gguf.tokens[6];
  EXPECT_EQ(code_of(gguf), Exit::kData);
  gguf = source(), gguf.add_bos = true, gguf.bos = -1;
  EXPECT_EQ(code_of(gguf), Exit::kData);
}

}  // namespace
}  // namespace sf::text
