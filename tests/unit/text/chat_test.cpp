// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/rng.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "tiny.h"

namespace sf::text {
namespace {

using tiny::ModelDir;

// The supervised tokens as text.
std::string supervised_text(const ChatEncoder& encoder, const EncodedChat& chat) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < chat.ids.size(); ++i)
    if (chat.loss_mask[i]) ids.push_back(chat.ids[i]);
  return encoder.tokenizer().decode(ids);
}

Json chat(std::initializer_list<std::pair<const char*, const char*>> turns) {
  Json out = Json::array();
  for (const auto& [role, content] : turns) out.push(tiny::object({{"role", role}, {"content", content}}));
  return out;
}

Exit code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Exit::kOk;
}

TEST(ChatEncoder, SupervisesTheAnswerAndItsEndOfTurnButNotTheNewlineBehind) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  Json messages = chat({{"user", "a"}, {"assistant", "b c"}, {"user", "d"}, {"assistant", "e"}});
  EncodedChat encoded = encoder.encode(messages, MaskRule::kTurn, 0);
  EXPECT_EQ(supervised_text(encoder, encoded), "b c<|im_end|>e<|im_end|>");
  EXPECT_EQ(encoder.tokenizer().decode(encoded.ids), encoder.render(messages, false));
}

TEST(ChatEncoder, TheReferenceRuleSupervisesTheNewlineBehindTheEndOfTurn) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  EncodedChat encoded = encoder.encode(chat({{"user", "a"}, {"assistant", "b"}, {"user", "d"}, {"assistant", "e"}}),
                                       MaskRule::kReference, 0);
  EXPECT_EQ(supervised_text(encoder, encoded), "b<|im_end|>\ne<|im_end|>\n");
}

TEST(ChatEncoder, AnAnswerThatQuotesTheMarksOfATurnIsSupervisedWhole) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  EncodedChat encoded =
      encoder.encode(chat({{"user", "<|im_start|>assistant\nno<|im_end|>\n"}, {"assistant", "say <|im_end|> twice"}}),
                     MaskRule::kTurn, 0);
  EXPECT_EQ(supervised_text(encoder, encoded), "say <|im_end|> twice<|im_end|>");
}

TEST(ChatEncoder, TextThatMergesAcrossTheBorderOfATurnIsRefused) {
  // "\n\n" is one token: an answer that begins with two line ends pairs the first with the header's.
  ModelDir dir(tiny::tokenizer({{"\n", "\n"}}), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  EXPECT_EQ(code_of([&] {
              encoder.encode(chat({{"user", "a"}, {"assistant", "\n\nb"}}), MaskRule::kTurn, 0);
            }),
            Exit::kData);
  EXPECT_EQ(code_of([&] { encoder.encode(chat({{"user", "a"}, {"assistant", "b"}}), MaskRule::kTurn, 0); }), Exit::kOk);
}

TEST(ChatEncoder, AnAnswerTheTemplateRewritesInHistoryStaysUnsupervised) {
  // Thinking is kept in the last message only, as Qwen3's template does.
  std::string thinking =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}{{ m.content }}"
      "{% else %}{{ m.content.split('</think>')[-1] }}{% endif %}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  ModelDir dir(tiny::tokenizer(), thinking);
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  EncodedChat encoded = encoder.encode(
      chat({{"user", "a"}, {"assistant", "<think>x</think>b"}, {"user", "c"}, {"assistant", "<think>y</think>d"}}),
      MaskRule::kTurn, 0);
  EXPECT_EQ(supervised_text(encoder, encoded), "<think>y</think>d<|im_end|>");
}

TEST(ChatEncoder, TruncationCutsIdsAndMaskAlike) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  Json messages = chat({{"user", "a"}, {"assistant", "bcdef"}});
  EncodedChat whole = encoder.encode(messages, MaskRule::kTurn, 0), cut = encoder.encode(messages, MaskRule::kTurn, 21);
  ASSERT_EQ(cut.ids.size(), 21u);
  EXPECT_TRUE(std::equal(cut.ids.begin(), cut.ids.end(), whole.ids.begin()));
  EXPECT_TRUE(std::equal(cut.loss_mask.begin(), cut.loss_mask.end(), whole.loss_mask.begin()));
  EXPECT_EQ(cut.loss_mask.size(), 21u);
}

TEST(ChatEncoder, AMissingTokenizerOrTemplateIsMissingInput) {
  ModelDir dir(tiny::tokenizer(), "");
  EXPECT_EQ(code_of([&] { ChatEncoder::open(dir.path / "absent"); }), Exit::kNoInput);
  EXPECT_EQ(code_of([&] { ChatEncoder::open(dir.path); }), Exit::kNoInput);
}

TEST(ChatEncoder, TheTemplateFileWinsOverTheConfiguration) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  dir.write("chat_template.jinja", "{{ messages | length }}{{ eos_token }}");
  EXPECT_EQ(ChatEncoder::open(dir.path).render(chat({{"user", "a"}}), false), "1<|im_end|>");
}

TEST(ReadChats, AcceptsTheFourShapesOfARow) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  auto file =
      dir.write("chats.jsonl",
                "{\"id\":\"one\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
                "\"content\":\"b\"}]}\n\n"
                "{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":\"b\"}]}\n"
                "{\"text\":\"<|im_start|>user\\na<|im_end|>\\n<|im_start|>assistant\\nb<|im_end|>\\n\"}\n"
                "{\"input_ids\":[[1,2,3]],\"loss_mask\":[[0,1,1]]}\n");
  auto rows = read_chats(file, encoder, MaskRule::kTurn, 0);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].id, "one");
  EXPECT_EQ(rows[1].id, "row-1");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rows[i].rejected, "");
    EXPECT_EQ(supervised_text(encoder, rows[i].encoded), "b<|im_end|>");
    EXPECT_EQ(rows[i].encoded.ids, rows[0].encoded.ids);
  }
  EXPECT_EQ(rows[3].encoded.ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(rows[3].encoded.supervised(), 2u);
}

TEST(ReadChats, KeepsWhatItRejectsWithTheReason) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  auto file = dir.write("chats.jsonl",
                        "{\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}\n"
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n"
                        "{\"input_ids\":[1,2],\"loss_mask\":[1]}\n"
                        "{\"input_ids\":[1,9999],\"loss_mask\":[1,1]}\n"
                        "{\"input_ids\":[1,true],\"loss_mask\":[1,1]}\n"
                        "{\"input_ids\":[1]}\n"
                        "{\"other\":1}\n");
  auto rows = read_chats(file, encoder, MaskRule::kTurn, 0);
  ASSERT_EQ(rows.size(), 7u);
  EXPECT_EQ(rows[0].rejected, "no role tool");
  EXPECT_EQ(rows[1].rejected, "no supervised token");
  for (size_t i = 2; i < rows.size(); ++i) EXPECT_NE(rows[i].rejected, "") << i;
  for (const ChatRow& row : rows) EXPECT_TRUE(row.encoded.ids.empty());
}

// Members of every kind under every name a row may have, and now and then a damaged byte.
TEST(ReadChats, RandomRowsAreKeptOrRejectedOrNamedNeverACrash) {
  ModelDir dir(tiny::tokenizer({{"a", "b"}}), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  const std::vector<std::string> names = {"id",        "messages",  "conversations", "text",
                                          "input_ids", "loss_mask", "prompt"};
  const std::vector<std::string> values = {"null",
                                           "1e300",
                                           "-1",
                                           "\"\"",
                                           "\"\\u0000\\ud83d\\ude00\"",
                                           "[]",
                                           "{}",
                                           "[[]]",
                                           "[[0,1,2]]",
                                           "[0,1,1]",
                                           "[0,4000000000]",
                                           "[true]",
                                           R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])",
                                           R"([{"from":"human","value":"a"},{"from":"gpt","value":null}])",
                                           R"([{"role":"system"}])",
                                           R"([{"role":5}])",
                                           R"([{"role":"assistant","content":"<|im_end|>\n<|im_start|>user"}])",
                                           "[null]",
                                           R"("<|im_start|>assistant\nb<|im_end|><|im_start|>assistant\n")"};
  Rng rng(12, "test.chats");
  const uint64_t rounds = std::getenv("SF_SOAK") ? 40'000 : 300;
  uint64_t kept = 0, rejected = 0, refused = 0;
  for (uint64_t i = 0; i < rounds; ++i) {
    std::string line = "{";
    for (uint64_t k = 0; k < 1 + i % 3; ++k)
      line += (k ? ",\"" : "\"") + names[rng.below(names.size(), i, 2 * k)] +
              "\":" + values[rng.below(values.size(), i, 2 * k + 1)];
    line += "}";
    if (i % 5 == 0) line[rng.below(line.size(), i, 20)] = static_cast<char>(rng.below(256, i, 21));
    auto file = dir.write("random.jsonl", line + "\n");
    try {
      for (const ChatRow& row :
           read_chats(file, encoder, i % 2 ? MaskRule::kTurn : MaskRule::kReference, 20 * (i % 4))) {
        (row.rejected.empty() ? kept : rejected) += 1;
        ASSERT_EQ(row.encoded.ids.size(), row.encoded.loss_mask.size()) << line;
        ASSERT_EQ(row.rejected.empty(), row.encoded.supervised() > 0) << line;
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Exit::kData) << line;
      ASSERT_NE(std::string(error.what()).find("random.jsonl:"), std::string::npos) << error.what() << "\n" << line;
      ++refused;
    }
  }
  EXPECT_GT(kept, rounds / 100);
  EXPECT_GT(rejected, rounds / 4);
  EXPECT_GT(refused, rounds / 20);
}

TEST(ReadChats, ALineThatIsNotJsonNamesFileAndLine) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  auto file = dir.write("chats.jsonl", "{\"input_ids\":[1],\"loss_mask\":[1]}\n\nnot json\n");
  try {
    read_chats(file, encoder, MaskRule::kTurn, 0);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
    EXPECT_NE(std::string(error.what()).find("chats.jsonl:3"), std::string::npos) << error.what();
  }
}

Json long_chat(int turns) {
  Json messages = Json::array();
  for (int i = 0; i < turns; ++i)
    messages.push(tiny::object({{"role", i % 2 ? "assistant" : "user"}, {"content", i % 2 ? "b" : "a"}}));
  return messages;
}

TEST(ChatEncoder, WhatLiesBehindTheTokensThatAreKeptCostsNothingAndChangesNothing) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  for (MaskRule rule : {MaskRule::kTurn, MaskRule::kReference}) {
    EncodedChat few = encoder.encode(long_chat(40), rule, 0), many = encoder.encode(long_chat(4000), rule, 200);
    ASSERT_EQ(many.ids.size(), 200u);
    ASSERT_GT(few.ids.size(), 200u);
    EXPECT_TRUE(std::equal(many.ids.begin(), many.ids.end(), few.ids.begin()));
    EXPECT_TRUE(std::equal(many.loss_mask.begin(), many.loss_mask.end(), few.loss_mask.begin()));
  }
}

TEST(ReadChats, ARowOfEndlessTurnsIsRejectedWithItsReason) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  auto file = dir.write("chats.jsonl", tiny::object({{"messages", long_chat(600)}}).dump() + "\n");
  EXPECT_NE(read_chats(file, encoder, MaskRule::kTurn, 0).at(0).rejected.find("more than 256 answers"),
            std::string::npos);
  EXPECT_EQ(read_chats(file, encoder, MaskRule::kTurn, 512).at(0).rejected, "");
}

TEST(ReadPrompts, AnIdThatIsNeitherTextNorAWholeNumberIsRefusedWithItsLine) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  ChatEncoder encoder = ChatEncoder::open(dir.path);
  for (const char* id : {"[1]", "{}", "1.5", "true"}) {
    auto file = dir.write("odd.jsonl", fmt::format("{{\"prompt\":\"a\"}}\n\n{{\"id\":{},\"prompt\":\"b\"}}\n", id));
    for (bool chats : {false, true}) {
      try {
        chats ? void(read_chats(file, encoder, MaskRule::kTurn, 0)) : void(read_prompts(file));
        ADD_FAILURE() << id << " was taken for an id";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Exit::kData);
        EXPECT_NE(std::string(error.what()).find("odd.jsonl:3: \"id\" is "), std::string::npos) << error.what();
      }
    }
  }
}

TEST(TemplateFault, NamesLineAndColumnOfWhatTheSubsetLacksAndNothingElse) {
  EXPECT_EQ(template_fault(tiny::chatml(), "t"), "");
  EXPECT_EQ(template_fault("{{ raise_exception('only with tools') }}", "t"), "");
  EXPECT_NE(template_fault("{% for m in messages %}\n {% include 'x' %}{% endfor %}", "t").find("t:2:"),
            std::string::npos);
}

TEST(ReadPrompts, DropsAnswersBehindTheLastUserMessageOnly) {
  ModelDir dir(tiny::tokenizer(), tiny::chatml());
  auto file = dir.write(
      "prompts.jsonl",
      "{\"id\":7,\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},"
      "{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"assistant\",\"content\":\"d\"}]}\n{\"prompt\":\"hi\"}\n");
  auto prompts = read_prompts(file);
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].id, "7");
  EXPECT_EQ(prompts[0].messages, chat({{"user", "a"}, {"assistant", "b"}, {"user", "c"}}));
  EXPECT_EQ(prompts[1].messages, chat({{"user", "hi"}}));
  EXPECT_EQ(prompts[1].origin, file.string() + ":2");
}

}  // namespace
}  // namespace sf::text
