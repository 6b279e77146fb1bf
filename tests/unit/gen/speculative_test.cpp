// SPDX-License-Identifier: Apache-2.0
#include "gen/speculative.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

#include "base/error.h"
#include "ckpt/checkpoint.h"
#include "fit.h"
#include "tensor/compare.h"
#include "tensor/convert.h"
#include "tiny.h"

namespace sf::gen {
namespace {

std::vector<Prompt> prompts(int64_t count) {
  std::vector<Prompt> all;
  for (int64_t i = 0; i < count; ++i)
    all.push_back({static_cast<uint64_t>(i), tiny::ids(1 + 6 * (i % 5), static_cast<uint64_t>(i))});
  return all;
}

std::map<size_t, Completion> plain(Target& target, const std::vector<Prompt>& given, const GenerateOptions& options) {
  std::map<size_t, Completion> all;
  generate(target, given, options, [&](const Completion& c) { all[c.prompt] = c; });
  return all;
}

std::map<size_t, Completion> drafted(Target& target, Eagle3Draft& draft, const std::vector<Prompt>& given,
                                     const GenerateOptions& options, const Proposals& proposals,
                                     SpeculativeStats* stats = nullptr) {
  std::map<size_t, Completion> all;
  SpeculativeStats counted =
      speculate(target, draft, given, options, proposals, [&](const Completion& c) { all[c.prompt] = c; });
  if (stats) *stats = counted;
  return all;
}

void expect_same(const std::map<size_t, Completion>& found, const std::map<size_t, Completion>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [index, completion] : found) {
    EXPECT_EQ(completion.ids, wanted.at(index).ids) << index;
    EXPECT_EQ(completion.finish, wanted.at(index).finish) << index;
    EXPECT_EQ(completion.least_margin, wanted.at(index).least_margin) << index;
  }
}

class Greedy : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, Greedy, testing::Values(Dtype::kF32, Dtype::kBF16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(Greedy, SpeculationGivesThePlainTokens) {
  Target target = tiny::target(GetParam());
  Eagle3Draft draft = tiny::draft(target, 18);
  for (double penalty : {1.0, 1.3}) {
    GenerateOptions options{.sampling = {.repetition_penalty = penalty}, .max_new_tokens = 40, .stop_ids = {4}};
    std::map<size_t, Completion> wanted = plain(target, prompts(7), options);
    ASSERT_EQ(wanted.size(), 7u);
    for (int64_t batch : {1, 3}) {
      options.batch = batch;
      for (int64_t tokens : {1, 4}) {
        std::map<size_t, Completion> found = drafted(target, draft, prompts(7), options, {tokens});
        expect_same(found, wanted);
      }
    }
  }
}

TEST(Speculation, CountsAcceptancesWithTheirDenominators) {
  Target target = tiny::target();
  Eagle3Draft draft = tiny::draft(target, 37);
  SpeculativeStats stats;
  std::map<size_t, Completion> found =
      drafted(target, draft, prompts(9), {.max_new_tokens = 40, .batch = 1}, {3}, &stats);
  int64_t tokens = 0;
  for (const auto& [index, completion] : found) tokens += static_cast<int64_t>(completion.ids.size());
  EXPECT_EQ(stats.all.new_tokens, tokens);
  EXPECT_EQ(stats.committed, tokens - 9);  // the prefill's token is not the verification's
  EXPECT_EQ(stats.all.target_forwards, 9 + stats.verifications);
  // One over the new features, two over own output; and the features of 7 prompts but for their last token.
  EXPECT_EQ(stats.draft_forwards, 3 * stats.verifications + 7);
  EXPECT_EQ(stats.tried[0], stats.verifications);
  for (size_t j = 1; j < 3; ++j) EXPECT_LE(stats.tried[j], stats.accepted[j - 1]);
  EXPECT_GT(stats.accepted[0], 0);  // by luck of a random draft, so that the line above says something
  EXPECT_LE(std::accumulate(stats.accepted.begin(), stats.accepted.end(), int64_t{0}), stats.committed);
  EXPECT_EQ(stats.acceptance_length(), static_cast<double>(stats.committed) / static_cast<double>(stats.verifications));
}

TEST(Speculation, SampledTokensFollowTheTargetsLaw) {
  constexpr int64_t kVocab = 6, kSamples = 6000;
  Target target = tiny::target(Dtype::kF32, tiny::decoder(kVocab, 1));
  Eagle3Draft draft = tiny::draft(target, 3);  // half of the law is out of the draft's reach
  GenerateOptions options{
      .sampling = {.temperature = 1.3, .top_p = 0.95, .seed = 17}, .max_new_tokens = 3, .batch = 64};
  SpeculativeStats stats;
  std::map<size_t, Completion> found = drafted(target, draft, fit_prompts(kSamples), options, {2}, &stats);
  const Fit fit = fit_of(target, options, found);
  ASSERT_GT(fit.cells, 20);
  EXPECT_GT(stats.accepted[0], kSamples / 20);
  EXPECT_GT(stats.tried[0] - stats.accepted[0], kSamples / 20);
  EXPECT_LT(fit.chi_square, fit.most());
}

TEST(Speculation, SampledCompletionsDoNotDependOnTheBatch) {
  Target target = tiny::target();
  Eagle3Draft draft = tiny::draft(target, 18);
  GenerateOptions options{.sampling = {.temperature = 1, .repetition_penalty = 1.2, .seed = 3},
                          .max_new_tokens = 24,
                          .batch = 1,
                          .log_probs = true};
  std::map<size_t, Completion> wanted = drafted(target, draft, prompts(6), options, {3});
  options.batch = 4;
  for (const auto& [index, completion] : drafted(target, draft, prompts(6), options, {3})) {
    EXPECT_EQ(completion.ids, wanted[index].ids);
    EXPECT_EQ(completion.log_prob, wanted[index].log_prob);
  }
}

TEST_P(Greedy, ATreeGivesThePlainTokens) {
  Target target = tiny::target(GetParam());
  Eagle3Draft draft = tiny::draft(target, 18);
  for (double penalty : {1.0, 1.3}) {
    GenerateOptions options{.sampling = {.repetition_penalty = penalty}, .max_new_tokens = 40, .stop_ids = {4}};
    std::map<size_t, Completion> wanted = plain(target, prompts(7), options);
    ASSERT_EQ(wanted.size(), 7u);
    for (const Proposals& proposals : {Proposals{1, 3, 4}, Proposals{4, 16, 3}, Proposals{3, 100, 40}}) {
      options.batch = proposals.depth;
      std::map<size_t, Completion> found = drafted(target, draft, prompts(7), options, proposals);
      expect_same(found, wanted);
    }
  }
}

TEST(Speculation, SampledTokensOfATreeAreThePlainOnes) {
  Target target = tiny::target();
  Eagle3Draft draft = tiny::draft(target, 18);
  GenerateOptions options{.sampling = {.temperature = 1, .repetition_penalty = 1.2, .seed = 3},
                          .max_new_tokens = 24,
                          .batch = 3,
                          .log_probs = true};
  std::map<size_t, Completion> wanted = plain(target, prompts(6), options);
  SpeculativeStats stats;
  for (const auto& [index, completion] : drafted(target, draft, prompts(6), options, {4, 24, 6}, &stats)) {
    EXPECT_EQ(completion.ids, wanted[index].ids);
    EXPECT_EQ(completion.log_prob, wanted[index].log_prob);
  }
  EXPECT_GT(stats.accepted[1], 0);
}

TEST(Speculation, ATreeOfOneBranchIsTheChain) {
  Target target = tiny::target();
  Eagle3Draft draft = tiny::draft(target, 37);
  SpeculativeStats chain, tree, wide;
  const GenerateOptions options{.max_new_tokens = 40, .batch = 1};
  drafted(target, draft, prompts(9), options, {3}, &chain);
  drafted(target, draft, prompts(9), options, {3, 3, 1}, &tree);
  EXPECT_EQ(tree.tried, chain.tried);
  EXPECT_EQ(tree.accepted, chain.accepted);
  EXPECT_EQ(tree.draft_forwards, chain.draft_forwards);
  drafted(target, draft, prompts(9), options, {3, 60, 8}, &wide);
  EXPECT_EQ(wide.committed, chain.committed);
  EXPECT_LT(wide.verifications, chain.verifications);
  EXPECT_EQ(wide.draft_forwards, 3 * wide.verifications + 7);
}

TEST(Speculation, APromptFedInPiecesDraftsAsOneFedWhole) {
  Target target = tiny::target();
  Eagle3Draft draft = tiny::draft(target, 37);
  const std::vector<int32_t> ids = tiny::ids(300, 1);
  GenerateOptions options{.sampling = {.temperature = 2, .seed = 9}, .max_new_tokens = 2, .batch = 16};
  std::vector<Prompt> given;
  for (uint64_t i = 0; i < 60; ++i) given.push_back({i, ids});
  SpeculativeStats stats;
  std::map<size_t, Completion> found = drafted(target, draft, given, options, {1}, &stats);

  // The first round by hand, from one step over the whole prompt.
  auto law_at = [&](const at::Tensor& scores) {
    return law_of({scores.const_data_ptr<float>(), 37}, options.sampling, {});
  };
  const Draws draws(options.sampling.seed);
  int64_t accepted = 0;
  for (const auto& [index, completion] : found) {
    Cache cache = target.make_cache(512), draft_cache = draft.make_cache(512);
    std::vector<int32_t> next(ids.begin() + 1, ids.end());
    next.push_back(completion.ids[0]);
    const States states = target.prefill(cache, ids, draft.capture_layers());
    const Part whole{&draft_cache, next}, last{&cache, std::span(next).last(1)};
    const at::Tensor carried = draft.forward(std::span(&whole, 1), draft.fuse(states.captured)).narrow(0, 299, 1);
    const Law proposed = law_at(draft.scores(carried));
    const Law wanted = law_at(target.logits(target.forward(std::span(&last, 1)).final_norm));
    const int32_t id = proposed.pick(draws.draft(index, 1));
    accepted += draws.accept(index, 1) * proposed.of(id) < wanted.of(id);
  }
  EXPECT_EQ(stats.accepted[0], accepted);
  EXPECT_GT(accepted, 5);
  EXPECT_LT(accepted, 55);
}

TEST(Eagle3Draft, StepsOverFeaturesEqualOneStepOverAll) {
  Target target = tiny::target();
  Eagle3Draft draft = tiny::draft(target, 18);
  const std::vector<int32_t> ids = tiny::ids(21, 1);
  Cache cache = target.make_cache(64), whole = draft.make_cache(64), pieces = draft.make_cache(64);
  const States states = target.prefill(cache, std::span(ids).first(20), draft.capture_layers());
  const at::Tensor fused = draft.fuse(states.captured);
  const Part all{&whole, std::span(ids).last(20)};
  const at::Tensor wanted = draft.forward(std::span(&all, 1), fused);
  for (size_t i = 0; i < 20; i += 5) {
    const Part part{&pieces, std::span(ids).subspan(i + 1, 5)};
    const auto row = static_cast<int64_t>(i);
    EXPECT_TRUE(
        tensor::bit_equal(draft.forward(std::span(&part, 1), fused.narrow(0, row, 5)), wanted.narrow(0, row, 5)));
  }
  EXPECT_EQ(draft.forwards(), 5);
}

// A draft's directory with these marks.
std::filesystem::path publish(const Target& target, const std::string& name, std::vector<uint8_t> marks) {
  const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / (name + "-" + std::to_string(getpid()));
  std::filesystem::remove_all(dir);
  const arch::Eagle3 shape = tiny::draft_shape(target.decoder(), 18);
  model::Tensors weights = tiny::weights(arch::describe(shape));
  weights.erase("embed_tokens.weight");
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const auto& [key, tensor] : weights) tensors.emplace_back(key, tensor::view(tensor));
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < 18; ++i) offsets.push_back(i + 1);
  tensors.emplace_back("d2t", TensorView{reinterpret_cast<const std::byte*>(offsets.data()), Dtype::kI64, {18}});
  tensors.emplace_back("t2d", TensorView{reinterpret_cast<const std::byte*>(marks.data()), Dtype::kBool, {37}});
  ckpt::Manifest manifest;
  manifest.kind = "draft";
  return ckpt::Publisher(dir).commit(tensors, arch::eagle3_to_config(shape), manifest);
}

TEST(Eagle3Draft, IsReadFromItsDirectory) {
  Target target = tiny::target();
  std::vector<uint8_t> marks(37);
  for (size_t i = 1; i < 37; i += 2) marks[i] = 1;
  const std::filesystem::path dir = publish(target, "draft", marks);
  Eagle3Draft read = Eagle3Draft::load(ckpt::Checkpoint::open(dir), target), wanted = tiny::draft(target, 18);
  EXPECT_TRUE(std::ranges::equal(read.target_ids(), wanted.target_ids()));
  SpeculativeStats a, b;
  drafted(target, read, prompts(3), {.max_new_tokens = 12}, {3}, &a);
  drafted(target, wanted, prompts(3), {.max_new_tokens = 12}, {3}, &b);
  EXPECT_EQ(a.accepted, b.accepted);
  std::filesystem::remove_all(dir);
}

TEST(Eagle3Draft, WhoseMarksAndOffsetsDisagreeIsRefused) {
  Target target = tiny::target();
  std::vector<uint8_t> marks(37);
  for (size_t i = 0; i < 36; i += 2) marks[i] = 1;  // 18 of them, the even ids
  const std::filesystem::path dir = publish(target, "marks", marks);
  try {
    Eagle3Draft::load(ckpt::Checkpoint::open(dir), target);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
    EXPECT_NE(error.message().find("t2d"), std::string::npos);
  }
  std::filesystem::remove_all(dir);
}

TEST(Eagle3Draft, RefusesAnotherTargetAndABrokenVocabulary) {
  Target target = tiny::target(), other = tiny::target(Dtype::kF32, tiny::decoder(40));
  const arch::Eagle3 shape = tiny::draft_shape(target.decoder(), 3);
  const model::Tensors weights = tiny::weights(arch::describe(shape));
  auto code_of = [&](const Target& of, std::vector<int64_t> offsets) {
    try {
      Eagle3Draft(shape, Weights(weights, Dtype::kF32), offsets, of);
    } catch (const Error& error) {
      return error.code();
    }
    return Exit::kOk;
  };
  EXPECT_EQ(code_of(target, {0, 1, 30}), Exit::kOk);
  EXPECT_EQ(code_of(other, {0, 1, 30}), Exit::kProtocol);
  EXPECT_EQ(code_of(target, {0, 1, 35}), Exit::kData);  // 37 is outside
  EXPECT_EQ(code_of(target, {0, 1, -1}), Exit::kData);  // 1 again
  EXPECT_EQ(code_of(target, {-1, 1, 2}), Exit::kData);
}

}  // namespace
}  // namespace sf::gen
