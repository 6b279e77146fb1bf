// SPDX-License-Identifier: Apache-2.0
#include "gen/generate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/checkpoint.h"
#include "gen/sequence.h"
#include "tensor/convert.h"
#include "tiny.h"

namespace sf::gen {
namespace {

std::vector<Prompt> prompts(int64_t count) {
  std::vector<Prompt> all;
  for (int64_t i = 0; i < count; ++i)
    all.push_back({static_cast<uint64_t>(i), tiny::ids(2 + 5 * (i % 7), static_cast<uint64_t>(i))});
  return all;
}

std::map<size_t, Completion> run(Target& target, const std::vector<Prompt>& given, const GenerateOptions& options,
                                 GenerateStats* stats = nullptr) {
  std::map<size_t, Completion> all;
  GenerateStats counted =
      generate(target, given, options, [&](const Completion& c) { EXPECT_TRUE(all.emplace(c.prompt, c).second); });
  if (stats) *stats = counted;
  return all;
}

class AnyBatch : public testing::TestWithParam<std::pair<Dtype, double>> {};
INSTANTIATE_TEST_SUITE_P(All, AnyBatch,
                         testing::Values(std::pair{Dtype::kF32, 0.0}, std::pair{Dtype::kBF16, 0.0},
                                         std::pair{Dtype::kF32, 1.0}, std::pair{Dtype::kBF16, 1.0}));

TEST_P(AnyBatch, GivesTheSameCompletions) {
  Target target = tiny::target(GetParam().first);
  GenerateOptions options{
      .sampling = {.temperature = GetParam().second, .top_p = 0.9, .repetition_penalty = 1.1, .seed = 3},
      .max_new_tokens = 20,
      .stop_ids = {4, 5},
      .log_probs = true};
  std::map<size_t, Completion> wanted;
  for (int64_t batch : {1, 3, 32}) {
    options.batch = batch;
    std::map<size_t, Completion> found = run(target, prompts(11), options);
    ASSERT_EQ(found.size(), 11u);
    if (wanted.empty()) wanted = found;
    for (const auto& [index, completion] : found) {
      EXPECT_EQ(completion.ids, wanted[index].ids) << index;
      EXPECT_EQ(completion.log_prob, wanted[index].log_prob) << index;
    }
  }
}

TEST(Generate, TellsEachTokensLogProbabilityUnderTheTemperature) {
  Target target = tiny::target();
  GenerateOptions options{
      .sampling = {.temperature = 0.5, .seed = 3}, .max_new_tokens = 6, .log_probs = true, .token_log_probs = true};
  const std::vector<Prompt> given = prompts(1);
  const Completion found = run(target, given, options).at(0);
  ASSERT_EQ(found.token_log_probs.size(), found.ids.size());
  Cache cache = target.make_cache(64);
  std::vector<int32_t> ids = given[0].ids;
  ids.insert(ids.end(), found.ids.begin(), found.ids.end());
  const at::Tensor logits = target.logits(target.prefill(cache, ids).final_norm);
  double raw = 0;
  for (size_t t = 0; t < found.ids.size(); ++t) {
    const auto row = static_cast<int64_t>(given[0].ids.size() + t - 1);
    std::span<const float> scores(logits.const_data_ptr<float>() + row * logits.size(1), 37);
    EXPECT_EQ(found.token_log_probs[t], log_prob_of(scores, found.ids[t], 0.5));
    raw += log_prob_of(scores, found.ids[t]);
  }
  EXPECT_DOUBLE_EQ(found.log_prob, raw);
}

TEST(Generate, EndsWithTheStopIdOrAtTheLimit) {
  Target target = tiny::target();
  GenerateOptions options{.max_new_tokens = 12};
  const Completion free = run(target, prompts(1), options)[0];
  ASSERT_EQ(free.ids.size(), 12u);
  EXPECT_EQ(free.finish, Finish::kLength);
  options.stop_ids = {free.ids[5]};
  const Completion stopped = run(target, prompts(1), options)[0];
  const auto first = std::find(free.ids.begin(), free.ids.end(), free.ids[5]);
  EXPECT_EQ(stopped.ids, std::vector<int32_t>(free.ids.begin(), first + 1));
  EXPECT_EQ(stopped.finish, Finish::kStop);
}

// Ids 0 to 36 are the characters from '0' on.
text::Tokenizer letters() {
  Json vocab = Json::object();
  for (int64_t id = 0; id < 37; ++id) vocab.set(std::string(1, static_cast<char>('0' + id)), id);
  Json level = Json::object().set("type", "ByteLevel").set("add_prefix_space", false).set("use_regex", true);
  Json model = Json::object().set("type", "BPE").set("vocab", vocab).set("merges", Json::array());
  return text::Tokenizer::from_json(Json::object()
                                        .set("added_tokens", Json::array())
                                        .set("pre_tokenizer", level)
                                        .set("decoder", level)
                                        .set("model", model),
                                    "letters");
}

TEST(Generate, EndsWhereATextOfSeveralTokensFirstAppears) {
  Target target = tiny::target();
  const text::Tokenizer tokenizer = letters();
  GenerateOptions options{.sampling = {.temperature = 1, .seed = 3}, .max_new_tokens = 24, .tokenizer = &tokenizer};
  const std::map<size_t, Completion> free = run(target, prompts(5), options);
  const std::string whole = text_of(free.at(2), options, tokenizer);
  ASSERT_EQ(whole.size(), 24u);
  options.stop_texts = {"never there", whole.substr(9, 3), whole.substr(10, 2)};
  for (int64_t batch : {1, 5}) {
    options.batch = batch;
    const Completion cut = run(target, prompts(5), options)[2];
    EXPECT_EQ(cut.finish, Finish::kStopText);
    EXPECT_EQ(text_of(cut, options, tokenizer),
              whole.substr(0, std::min(whole.find(options.stop_texts[1]), whole.find(options.stop_texts[2]))));
    EXPECT_TRUE(std::equal(cut.ids.begin(), cut.ids.end(), free.at(2).ids.begin()));
  }
}

TEST(Generate, APromptsOwnLimitWins) {
  Target target = tiny::target();
  std::vector<Prompt> given = prompts(2);
  given[1].max_new_tokens = 1;
  std::map<size_t, Completion> found = run(target, given, {.max_new_tokens = 4});
  EXPECT_EQ(found[0].ids.size(), 4u);
  EXPECT_EQ(found[1].ids.size(), 1u);
}

TEST(Generate, GreedyFollowsTheArgmaxOfTheWholeSequence) {
  Target target = tiny::target();
  Completion found = run(target, prompts(3), {.max_new_tokens = 8})[2];
  std::vector<int32_t> ids = prompts(3)[2].ids;
  double log_prob = 0;
  for (int32_t id : found.ids) {
    Cache cache = target.make_cache(64);
    at::Tensor states = target.prefill(cache, ids).final_norm;
    at::Tensor logits = target.logits(states.narrow(0, states.size(0) - 1, 1));
    EXPECT_EQ(logits.argmax().item<int64_t>(), id);
    log_prob += logits.log_softmax(1).max().item<double>();
    ids.push_back(id);
  }
  Completion scored = run(target, prompts(3), {.max_new_tokens = 8, .log_probs = true})[2];
  EXPECT_EQ(scored.ids, found.ids);
  EXPECT_EQ(scored.least_margin, found.least_margin);
  EXPECT_NEAR(scored.log_prob, log_prob, 1e-5);  // log_softmax in fp32
}

TEST(Generate, SamplesOfOnePromptDifferAndRepeatWithTheSeed) {
  Target target = tiny::target();
  std::vector<Prompt> given{{1, tiny::ids(5, 1)}, {2, tiny::ids(5, 1)}, {1, tiny::ids(5, 1)}};
  std::map<size_t, Completion> found =
      run(target, given, {.sampling = {.temperature = 1, .seed = 5}, .max_new_tokens = 16});
  EXPECT_NE(found[0].ids, found[1].ids);
  EXPECT_EQ(found[0].ids, found[2].ids);
  EXPECT_NE(found[0].ids, run(target, given, {.sampling = {.temperature = 1, .seed = 6}, .max_new_tokens = 16})[0].ids);
}

// Several responses to each prompt, as reinforcement wants them; a prompt of 300 tokens is prefilled in two cuts.
TEST(Generate, APromptGivenSeveralTimesInARowIsComputedOnceAndAnsweredAsAlone) {
  for (auto [compute, decoder] :
       {std::pair(Dtype::kF32, tiny::decoder()), {Dtype::kBF16, tiny::decoder()}, {Dtype::kF32, tiny::hybrid(true)}}) {
    Target target = tiny::target(compute, decoder);
    const GenerateOptions options{
        .sampling = {.temperature = 1, .seed = 5}, .max_new_tokens = 16, .batch = 4, .token_log_probs = true};
    std::vector<Prompt> given;
    for (int64_t length : {300, 5, 9, 5})
      for (uint64_t i = 0; i < 3; ++i)
        given.push_back({static_cast<uint64_t>(length) + i, tiny::ids(length, static_cast<uint64_t>(length))});
    GenerateStats stats;
    const std::map<size_t, Completion> found = run(target, given, options, &stats);
    EXPECT_EQ(stats.prompt_tokens, 300 + 5 + 9 + 5);
    for (size_t i = 0; i < given.size(); ++i) {
      const Completion alone = run(target, {given[i]}, options)[0];
      EXPECT_EQ(found.at(i).ids, alone.ids) << i;
      EXPECT_EQ(found.at(i).token_log_probs, alone.token_log_probs) << i;
    }
  }
}

TEST(Generate, CountsWhatItDid) {
  Target target = tiny::target();
  GenerateStats stats;
  run(target, prompts(4), {.max_new_tokens = 5, .batch = 2}, &stats);
  EXPECT_EQ(stats.prompts, 4);
  EXPECT_EQ(stats.prompt_tokens, 2 + 7 + 12 + 17);
  EXPECT_EQ(stats.new_tokens, 20);
  EXPECT_EQ(stats.target_forwards, 4 + 2 * 4);  // a prefill each; then two pairs, four steps a pair
}

TEST(Generate, StopsWhenCancelled) {
  Target target = tiny::target();
  int asked = 0;
  GenerateOptions options{.max_new_tokens = 50, .batch = 2, .cancelled = [&] { return ++asked > 10; }};
  EXPECT_TRUE(run(target, prompts(4), options).empty());
}

TEST(Generate, RefusesAnEmptyPromptByItsNumber) {
  Target target = tiny::target();
  std::vector<Prompt> given = prompts(2);
  given[1].ids.clear();
  try {
    run(target, given, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
    EXPECT_NE(error.message().find("prompt 1"), std::string::npos);
  }
}

}  // namespace
}  // namespace sf::gen
