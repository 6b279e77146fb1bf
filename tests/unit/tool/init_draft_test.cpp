// SPDX-License-Identifier: Apache-2.0
#include "tool/init_draft.h"

#include <gtest/gtest.h>

#include <cmath>

#include "arch/eagle3.h"
#include "ckpt/draft.h"
#include "fixture.h"
#include "text/chat.h"
#include "tool/shard_inspect.h"
#include "tool/shard_verify.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

// A target, chats whose answers are made of few letters, and the options that put them together.
struct Case {
  Scratch scratch;
  InitDraftOptions options;

  explicit Case(const std::string& chats = chat("aab") + chat("abc")) {
    options.target = tiny_model(scratch);
    write_atomic(scratch / "chats.jsonl", chats);
    options.data = scratch / "chats.jsonl";
    options.out = scratch / "draft";
    options.draft_vocab = 3;
  }
  static std::string chat(const std::string& answer) {
    return R"({"messages": [{"role": "user", "content": "zzzz"}, {"role": "assistant", "content": ")" + answer +
           "\"}]}\n";
  }
  ckpt::Checkpoint made() { return ckpt::Checkpoint::open(init_draft(options)); }
};

TEST(InitDraft, TheCheckpointVerifiesAndNamesItsTarget) {
  Case c;
  ckpt::Checkpoint draft = c.made(), target = ckpt::Checkpoint::open(c.options.target);
  EXPECT_EQ(verify(draft.dir()), std::vector<std::string>{});
  ckpt::TargetLink link = ckpt::target_of(draft);
  EXPECT_EQ(link.identity, target.identity());
  EXPECT_EQ(link.tokenizer, text::ChatEncoder::open(c.options.target).tokenizer_digest());
  EXPECT_EQ(link.taken.at("embed_tokens.weight"), "model.embed_tokens.weight");
  EXPECT_FALSE(draft.contains("embed_tokens.weight"));
  ckpt::check_target(draft, target);
}

TEST(InitDraft, ADraftOfAnotherTargetIsRefused) {
  Case c;
  Json config = tiny_config();
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)));
  tensors.back().second.as<float>()[0] += 1;
  ckpt::Checkpoint other = ckpt::Checkpoint::open(write_model(c.scratch / "other", config, tensors)), draft = c.made();
  std::string why = refusal(Exit::kProtocol, [&] { ckpt::check_target(draft, other); });
  EXPECT_NE(why.find("another target"), std::string::npos) << why;
}

TEST(InitDraft, TheVocabularyIsCountedOverSupervisedTokensOnly) {
  Case c;
  arch::VocabMap map = ckpt::read_vocab_map(c.made());
  EXPECT_EQ(map.used, (std::vector<int64_t>{'a', 'b', 258}));  // a 3, b 2, end of turn 2, c 1; the question's z none
}

TEST(InitDraft, ADraftFromItsTargetStartsWithTheTargetsHeadAndNorms) {
  Case c;
  c.options.from_target = c.options.fc_norm = true;
  ckpt::Checkpoint draft = c.made(), target = ckpt::Checkpoint::open(c.options.target);
  std::vector<float> head = floats_of(draft, "lm_head.weight"), whole = floats_of(target, "lm_head.weight");
  ASSERT_EQ(draft.info("lm_head.weight").shape, (Shape{3, kHidden}));
  const size_t ids[] = {'a', 'b', 258};
  for (size_t row = 0; row < 3; ++row)
    for (size_t i = 0; i < static_cast<size_t>(kHidden); ++i)
      ASSERT_EQ(head[row * kHidden + i], whole[ids[row] * kHidden + i]);
  std::vector<float> norm = floats_of(target, "model.norm.weight");
  for (float& w : norm) w *= 0.2f;
  EXPECT_EQ(floats_of(draft, "norm.weight"), norm);
  EXPECT_EQ(floats_of(draft, "fc_norm.0.weight"), floats_of(target, "model.layers.2.input_layernorm.weight"));
}

TEST(InitDraft, ADraftFromItsTargetPassesTheLastStateAndItsBlockAddsNothing) {
  Case c;
  c.options.from_target = true;
  ckpt::Checkpoint draft = c.made();
  std::vector<float> fc = floats_of(draft, "fc.weight");  // [H, 3 H]
  double off = 0;
  for (int64_t row = 0; row < kHidden; ++row)
    for (int64_t column = 0; column < 3 * kHidden; ++column) {
      float w = fc[static_cast<size_t>(row * 3 * kHidden + column)];
      if (column == 2 * kHidden + row)
        ASSERT_NEAR(w, 1, 0.03);  // seven deviations
      else
        off += w * w;
    }
  EXPECT_NEAR(std::sqrt(off / static_cast<double>(kHidden * (3 * kHidden - 1))), 0.004, 0.0008);
  for (const char* name : {"midlayer.self_attn.o_proj.weight", "midlayer.mlp.down_proj.weight"})
    for (float w : floats_of(draft, name)) ASSERT_EQ(w, 0);
}

TEST(InitDraft, TheHeadIsNormalAndItsNormOne) {
  Case c;
  ckpt::Checkpoint draft = c.made();
  EXPECT_EQ(floats_of(draft, "norm.weight"), std::vector<float>(kHidden, 1.0f));
  EXPECT_LT(std::abs(floats_of(draft, "lm_head.weight")[0]), 0.2f);
}

TEST(InitDraft, MatricesAreNormalWithDeviationTwoHundredths) {
  Case c;
  std::vector<float> w = floats_of(c.made(), "midlayer.self_attn.q_proj.weight");
  double sum = 0, squares = 0;
  for (float x : w) sum += x, squares += double{x} * x;
  double n = static_cast<double>(w.size());
  EXPECT_NEAR(sum / n, 0, 5 * 0.02 / std::sqrt(n));  // five standard errors
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 5 * 0.02 / std::sqrt(2 * n));
}

TEST(InitDraft, ValuesDependOnTheSeedAndNothingElse) {
  Case a, b, other;
  other.options.seed = 1;
  b.options.fc_norm = true;  // one parameter more leaves the others alone
  std::vector<float> first = floats_of(a.made(), "fc.weight");
  EXPECT_EQ(floats_of(b.made(), "fc.weight"), first);
  EXPECT_NE(floats_of(other.made(), "fc.weight"), first);
}

TEST(InitDraft, TiesGoToTheLowestIdUnlessTheReferencesOrderIsAsked) {
  Case ours(Case::chat("dd") + Case::chat("ccbb")), quirk(Case::chat("dd") + Case::chat("ccbb"));
  ours.options.draft_vocab = quirk.options.draft_vocab = 2;
  quirk.options.reference_quirks = true;
  EXPECT_EQ(ckpt::read_vocab_map(ours.made()).used, (std::vector<int64_t>{'b', 'c'}));
  std::vector<int64_t> used = ckpt::read_vocab_map(quirk.made()).used;
  EXPECT_EQ(std::count(used.begin(), used.end(), 'd'), 1);  // seen first
}

TEST(InitDraft, TheFileHoldsTheCaptureLayersChosen) {
  Case c;
  c.options.capture_layers = {1, 2, 4};
  EXPECT_EQ(arch::eagle3_from_config(c.made().config()).capture_layers, (std::array<int64_t, 3>{1, 2, 4}));
  c.options.capture_layers = {1, 2, 5};
  c.options.out = c.scratch / "again";
  refusal(Exit::kConfig, [&] { init_draft(c.options); });
}

TEST(InitDraft, RejectedRowsAreCountedAndTheRunGoesOn) {
  Case c(Case::chat("aab") + R"({"messages": [{"role": "user", "content": "no answer"}]})" + "\n" + R"({"odd": 1})" +
         "\n");
  ckpt::Checkpoint draft = c.made();
  const Json& counts = draft.manifest().extra.at("vocabulary");
  EXPECT_EQ(counts.at("rows").as_int(), 3);
  EXPECT_EQ(counts.at("rejected").as_int() + counts.at("without_supervised_token").as_int(), 2);
  EXPECT_EQ(counts.at("supervised_tokens").as_int(), 4);
  EXPECT_EQ(counts.at("covered").as_int(), 4);
}

TEST(InitDraft, RefusalsLeaveNothingBehind) {
  Case c;
  auto refuse = [&](Exit code, const std::function<void(InitDraftOptions&)>& change) {
    InitDraftOptions o = c.options;
    change(o);
    refusal(code, [&] { init_draft(o); });
    EXPECT_FALSE(fs::exists(o.out));
  };
  refuse(Exit::kConfig, [](auto& o) { o.algorithm = "eagle9"; });
  refuse(Exit::kConfig, [](auto& o) { o.draft_vocab = kVocab + 1; });
  refuse(Exit::kNoInput, [&](auto& o) { o.data = c.scratch / "none.jsonl"; });
  refuse(Exit::kNoInput, [&](auto& o) { o.target = c.scratch / "none"; });
  refuse(Exit::kUsage, [](auto& o) { o.data.clear(); });
  write_atomic(c.scratch / "broken.jsonl", "{\n");
  refuse(Exit::kData, [&](auto& o) { o.data = c.scratch / "broken.jsonl"; });
  write_atomic(c.scratch / "silent.jsonl", R"({"messages": [{"role": "user", "content": "x"}]})");
  refuse(Exit::kData, [&](auto& o) { o.data = c.scratch / "silent.jsonl"; });
  size_t hidden = 0;
  for (const auto& entry : fs::directory_iterator(c.scratch.path()))
    hidden += entry.path().filename().string().starts_with(".");
  EXPECT_EQ(hidden, 0u);
}

TEST(InitDraft, AWholeVocabularyNeedsNoChats) {
  Case c;
  c.options.draft_vocab = 0;
  c.options.data.clear();
  EXPECT_EQ(ckpt::read_vocab_map(c.made()).used.size(), static_cast<size_t>(kVocab));
}

TEST(PlanDraft, PredictsTheBytes) {
  Case c;
  Json plan = plan_draft(c.options);
  int64_t bytes = 0;
  ckpt::Checkpoint draft = c.made();
  for (const std::string& name : draft.names()) bytes += static_cast<int64_t>(draft.view(name).bytes());
  EXPECT_EQ(plan.at("bytes").as_int(), bytes);
}

TEST(Verify, FindsAVocabularyMapThatDisagrees) {
  Case c;
  fs::path dir = init_draft(c.options);
  fs::path file = dir / "model.safetensors";
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);  // t2d is the narrowest: it lies last
  write_atomic(file, bytes);
  std::string all;
  for (const std::string& line : verify(dir)) all += line + "\n";
  EXPECT_NE(all.find("t2d: bytes differ"), std::string::npos) << all;
  EXPECT_NE(all.find("t2d marks 2 token ids, d2t maps 3"), std::string::npos) << all;
}

TEST(Inspect, ShowsADraftsTargetAndTensors) {
  Case c;
  Inspection seen = inspect(init_draft(c.options));
  EXPECT_NE(seen.table.find("draft of"), std::string::npos);
  EXPECT_NE(seen.table.find("midlayer.self_attn.q_proj.weight"), std::string::npos);
  EXPECT_EQ(seen.json.at("tensors").at("d2t").at("dtype").as_string(), "I64");
  EXPECT_EQ(seen.json.at("architecture").as_string(), "LlamaForCausalLMEagle3");
}

}  // namespace
}  // namespace sf::tool
