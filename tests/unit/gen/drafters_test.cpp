// SPDX-License-Identifier: Apache-2.0
// Drafts of every family in decoding. Two forms are held against each other: what decoding proposes behind a sequence,
// and what training's segments find right when those proposals are the sequence.
#include "gen/drafter.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "arch/dflash2.h"
#include "arch/domino.h"
#include "arch/dspark.h"
#include "arch/peagle.h"
#include "base/error.h"
#include "ckpt/checkpoint.h"
#include "fit.h"
#include "gen/speculative.h"
#include "model/dflash.h"
#include "model/dflash2.h"
#include "model/domino.h"
#include "model/dspark.h"
#include "model/peagle.h"
#include "tensor/convert.h"
#include "tiny.h"

namespace sf::gen {
namespace {

constexpr int64_t kBlock = 5, kPrompt = 13;

constexpr int64_t kWords = 37;  // of the target; a draft's own are the odd ones

template <typename Draft>
Draft on_blocks(int64_t words) {
  Draft draft;
  static_cast<arch::Dflash&>(draft) = arch::dflash_for_target(tiny::decoder(words), 2);
  draft.block = kBlock, draft.mask_token = words - 1;
  draft.windows = {6, 0}, draft.capture_layers = {1, 4};
  return draft;
}

arch::Dflash2 dflash2(int64_t words = kWords) {
  auto draft = on_blocks<arch::Dflash2>(words);
  draft.group = 8, draft.rank = 6, draft.top_k = 5, draft.softcap = 20, draft.embedding_scale = 1.5;
  return draft;
}

arch::Dspark dspark(arch::Markov markov, int64_t words = kWords) {
  auto draft = on_blocks<arch::Dspark>(words);
  draft.markov = markov, draft.rank = 7, draft.confidence = draft.confidence_with_markov = true;
  return draft;
}

arch::Domino domino(bool shift, int64_t words = kWords) {
  auto draft = on_blocks<arch::Domino>(words);
  draft.projection = 9, draft.state = 10, draft.shift_label = shift;
  return draft;
}

arch::Peagle peagle(int64_t words = kWords) {
  arch::Peagle draft = arch::peagle_for_target(tiny::decoder(words), words / 2, 2);
  draft.mask_token = words - 1, draft.capture_layers = {1, 2, 4}, draft.norm_before_residual = true;
  return draft;
}

// A draft of one family: its config, its segments in training, and where they count what is right.
struct Case {
  std::string name;
  Json config;
  std::vector<model::Segment> segments;
  int64_t proposals = 0, column = 1;
};

std::vector<Case> block_cases() {
  auto plain = on_blocks<arch::Dflash>(kWords);
  std::vector<Case> all{{"dflash", arch::dflash_to_config(plain), model::dflash_segments(plain, false), kBlock - 1},
                        {"dflash2", arch::dflash2_to_config(dflash2()), model::dflash2_segments(dflash2(), false),
                         kBlock - 1, model::kChosen}};
  for (arch::Markov markov : {arch::Markov::kVanilla, arch::Markov::kGated, arch::Markov::kRnn})
    all.push_back({"dspark_" + std::string(arch::name_of(markov)), arch::dspark_to_config(dspark(markov)),
                   model::dspark_segments(dspark(markov), false), kBlock, model::kCorrect});
  for (bool shift : {true, false})
    all.push_back({shift ? "domino" : "domino_same_place", arch::domino_to_config(domino(shift)),
                   model::domino_segments(domino(shift), false), shift ? kBlock : kBlock - 1, model::kFinalRight});
  return all;
}

model::Tensors parameters_of(const Json& config) {
  return tiny::weights(arch::draft_family(config).describe(config));
}

std::unique_ptr<Drafter> open(const Json& config, const Target& target, const DrafterOptions& options = {}) {
  const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / ("drafter-" + std::to_string(getpid()));
  std::filesystem::remove_all(dir);
  model::Tensors weights = parameters_of(config);
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const auto& [key, tensor] : weights) tensors.emplace_back(key, tensor::view(tensor));
  const int64_t words = target.decoder().vocab, own = words / 2;
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < own; ++i) offsets.push_back(i + 1);  // the odd ids
  std::vector<uint8_t> marks(static_cast<size_t>(words));
  for (size_t i = 1; i < marks.size(); i += 2) marks[i] = 1;
  if (config.contains("draft_vocab_size")) {
    tensors.emplace_back("d2t", TensorView{reinterpret_cast<const std::byte*>(offsets.data()), Dtype::kI64, {own}});
    tensors.emplace_back("t2d", TensorView{reinterpret_cast<const std::byte*>(marks.data()), Dtype::kBool, {words}});
  }
  ckpt::Manifest manifest;
  manifest.kind = "draft";
  ckpt::Publisher(dir).commit(tensors, config, manifest);
  std::unique_ptr<Drafter> draft = open_drafter(ckpt::Checkpoint::open(dir), target, options);
  std::filesystem::remove_all(dir);
  return draft;
}

// A prompt, the target's states of it, and what a draft proposes behind it and one token more.
struct Proposed {
  std::vector<int32_t> ids;  // prompt, one token, proposals
  at::Tensor captured;       // [prompt, layers H]
  int64_t proposals = 0;
};

Proposed propose(Target& target, Drafter& draft, int64_t count) {
  GenerateOptions options;
  Chooser chooser(target, options);
  Seat seat{Sequence({0, tiny::ids(kPrompt, 3)}, 0, options), target.make_cache(64), draft.make_cache(64)};
  const States states = target.prefill(seat.cache, seat.sequence.ids(), draft.capture_layers());
  seat.sequence.commit(7);
  Seat* one = &seat;
  for (const at::Tensor& layer : states.captured) seat.features.push_back(layer.narrow(0, 0, 9));
  draft.feed(std::span(&one, 1));
  for (const at::Tensor& layer : states.captured) seat.features.push_back(layer.narrow(0, 9, kPrompt - 9));
  draft.propose(std::span(&one, 1), count, Picker(chooser, options.sampling));
  Proposed all{
      {seat.sequence.ids().begin(), seat.sequence.ids().end()}, at::cat(states.captured, 1), std::ssize(seat.proposed)};
  all.ids.insert(all.ids.end(), seat.proposed.begin(), seat.proposed.end());
  return all;
}

at::Tensor integers(const std::vector<int64_t>& values) {
  at::Tensor row = at::zeros({1, std::ssize(values)}, at::kLong);
  std::copy(values.begin(), values.end(), row.mutable_data_ptr<int64_t>());
  return row;
}

model::Tensors batch_of(const Proposed& found) {
  const int64_t width = std::ssize(found.ids);
  at::Tensor states = at::cat({found.captured, at::zeros({width - kPrompt, found.captured.size(1)})}, 0).unsqueeze(0);
  return {{"input_ids", integers({found.ids.begin(), found.ids.end()})},
          {"loss_mask", at::full({1, width}, 1, at::kLong)},
          {"lengths", at::full({1}, width, at::kLong)},
          {"hidden_states", states},
          {"hidden_state", states},
          {"final_norm", at::zeros({1, width, tiny::decoder().hidden})}};
}

model::Tensors run(const std::vector<model::Segment>& segments, const Json& config, model::Tensors boundaries) {
  model::Tensors all = parameters_of(config), target = tiny::weights(arch::describe(tiny::decoder()));
  all[arch::kTargetEmbedding] = target.at("model.embed_tokens.weight");
  all[arch::kTargetHead] = target.at("lm_head.weight");
  if (config.contains("draft_vocab_size")) all[arch::kTargetHead] = all.at(arch::kTargetHead).narrow(0, 0, 18);
  for (const model::Segment& segment : segments) {
    model::Tensors parameters;
    for (const std::string& name : segment.parameters) parameters[name] = all.at(name);
    for (auto& [name, value] : segment.forward(parameters, boundaries)) boundaries[name] = value;
  }
  return boundaries;
}

TEST(Drafters, TrainingFindsRightWhatABlockProposes) {
  Target target = tiny::target();
  for (const Case& c : block_cases()) {
    SCOPED_TRACE(c.name);
    std::unique_ptr<Drafter> draft = open(c.config, target);
    Proposed found = propose(target, *draft, 16);
    ASSERT_EQ(found.proposals, c.proposals);
    model::Tensors batch = batch_of(found);
    batch["anchors"] = integers({kPrompt});
    batch["slot_weights"] = at::full({kBlock}, 1, at::kFloat);
    batch["selector_share"] = batch["base_share"] = at::full({}, 0.5, at::kFloat);
    at::Tensor sums = run(c.segments, c.config, batch).at("slot_sums");
    EXPECT_EQ(sums.select(1, c.column).sum().item<double>(), static_cast<double>(c.proposals)) << sums;
    EXPECT_EQ(propose(target, *draft, 2).proposals, 2);
  }
}

TEST(Drafters, TrainingFindsRightWhatPeagleProposesAtEveryDepth) {
  Target target = tiny::target();
  const Json config = arch::peagle_to_config(peagle());
  std::unique_ptr<Drafter> draft = open(config, target);
  const int64_t depths = 4;
  Proposed found = propose(target, *draft, depths);
  ASSERT_EQ(found.proposals, depths);
  model::Eagle3Vocabulary vocabulary{at::zeros({37}, at::kBool), at::zeros({18}, at::kLong)};
  for (int64_t i = 0; i < 18; ++i) {
    vocabulary.d2t.mutable_data_ptr<int64_t>()[i] = i + 1;
    vocabulary.t2d.mutable_data_ptr<bool>()[2 * i + 1] = true;
  }
  std::vector<int64_t> choices(found.ids.size(), 0), deep, anchors;
  for (int64_t d = 0; d < depths; ++d)
    choices[static_cast<size_t>(kPrompt + d)] = found.ids[static_cast<size_t>(kPrompt + 1 + d)];
  for (int64_t d = 1; d < depths; ++d) deep.push_back(d), anchors.push_back(kPrompt - 1);
  auto right = [&](std::vector<int64_t> mask) {
    model::Tensors batch = batch_of(found);
    batch["loss_mask"] = integers(mask);
    batch["target_top1"] = integers(choices);
    batch["target_lse"] = at::zeros({1, std::ssize(found.ids)});
    batch["cod_anchors"] = integers(anchors), batch["cod_depths"] = integers(deep);
    batch["label_weight"] = at::full({}, 1, at::kFloat);
    return run(model::peagle_segments(peagle(), vocabulary, {.depths = static_cast<int>(depths)}), config, batch)
        .at("depth_sums")
        .select(1, 1);
  };
  std::vector<int64_t> first(found.ids.size(), 0), all(found.ids.size(), 0);
  first[kPrompt] = 1;  // the label of the last known state alone
  EXPECT_EQ(right(first).select(0, 0).item<double>(), 1);
  for (int64_t d = 0; d < depths; ++d) all[static_cast<size_t>(kPrompt + d)] = 1;
  at::Tensor found_right = right(all);
  for (int64_t d = 1; d < depths; ++d) EXPECT_EQ(found_right.select(0, d).item<double>(), 1) << d;
}

std::map<size_t, std::vector<int32_t>> answers(
    const std::function<void(const std::function<void(const Completion&)>&)>& decode) {
  std::map<size_t, std::vector<int32_t>> all;
  decode([&](const Completion& done) { all[done.prompt] = done.ids; });
  return all;
}

class EveryFamily : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, EveryFamily, testing::Values(Dtype::kF32, Dtype::kBF16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

void expect_plain_tokens(Dtype compute, const arch::Decoder& decoder) {
  Target target = tiny::target(compute, decoder);
  std::vector<Case> cases = block_cases();
  cases.push_back({"peagle", arch::peagle_to_config(peagle()), {}});
  std::vector<Prompt> prompts;
  for (uint64_t i = 0; i < 4; ++i) prompts.push_back({i, tiny::ids(1 + 7 * static_cast<int64_t>(i), i)});
  for (double penalty : {1.0, 1.3}) {
    GenerateOptions options{.sampling = {.repetition_penalty = penalty}, .max_new_tokens = 20, .stop_ids = {4}};
    auto plain = answers([&](const auto& done) { generate(target, prompts, options, done); });
    for (const Case& c : cases)
      for (int64_t batch : {1, 3}) {
        SCOPED_TRACE(c.name);
        std::unique_ptr<Drafter> draft = open(c.config, target);
        GenerateOptions batched = options;
        batched.batch = batch;
        EXPECT_EQ(answers([&](const auto& done) { speculate(target, *draft, prompts, batched, {4}, done); }), plain);
      }
  }
}

TEST_P(EveryFamily, GivesThePlainTokensGreedily) {
  for (const arch::Decoder& decoder : {tiny::decoder(), tiny::hybrid(true)}) expect_plain_tokens(GetParam(), decoder);
}

TEST_P(EveryFamily, ATreeOfPeagleGivesThePlainTokens) {
  Target target = tiny::target(GetParam());
  std::vector<Prompt> prompts;
  for (uint64_t i = 0; i < 4; ++i) prompts.push_back({i, tiny::ids(1 + 7 * static_cast<int64_t>(i), i)});
  const GenerateOptions options{.max_new_tokens = 20, .stop_ids = {4}, .batch = 3};
  auto plain = answers([&](const auto& done) { generate(target, prompts, options, done); });
  std::unique_ptr<Drafter> draft = open(arch::peagle_to_config(peagle()), target);
  SpeculativeStats stats;
  EXPECT_EQ(answers([&](const auto& done) {
              stats = speculate(target, *draft, prompts, options, {4, 60, 8}, done);
            }),
            plain);
  EXPECT_GT(stats.accepted[0], 0);
}

TEST(Drafters, AFamilyOfChainsRefusesATree) {
  Target target = tiny::target();
  for (const Case& c : block_cases()) {
    const std::vector<Prompt> prompts{{0, tiny::ids(5, 1)}};
    std::unique_ptr<Drafter> draft = open(c.config, target);
    try {
      speculate(target, *draft, prompts, {.max_new_tokens = 9}, {4, 16, 2}, [](const Completion&) {});
      ADD_FAILURE() << c.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kConfig);
    }
  }
}

// One Markov walk, one selector's, one GRU's, and the two without a walk.
TEST(Drafters, SampledTokensOfEveryFamilyFollowTheTargetsLaw) {
  constexpr int64_t kFew = 6, kSamples = 2000;
  Target target = tiny::target(Dtype::kF32, tiny::decoder(kFew));
  const std::pair<const char*, Json> drafts[] = {{"dflash", arch::dflash_to_config(on_blocks<arch::Dflash>(kFew))},
                                                 {"dflash2", arch::dflash2_to_config(dflash2(kFew))},
                                                 {"dspark", arch::dspark_to_config(dspark(arch::Markov::kRnn, kFew))},
                                                 {"domino", arch::domino_to_config(domino(true, kFew))},
                                                 {"peagle", arch::peagle_to_config(peagle(kFew))}};
  GenerateOptions options{
      .sampling = {.temperature = 1.3, .top_p = 0.95, .seed = 17}, .max_new_tokens = 3, .batch = 64};
  for (const auto& [name, config] : drafts) {
    SCOPED_TRACE(name);
    std::unique_ptr<Drafter> draft = open(config, target);
    std::map<size_t, Completion> found;
    SpeculativeStats stats = speculate(target, *draft, fit_prompts(kSamples), options, {2},
                                       [&](const Completion& done) { found[done.prompt] = done; });
    const Fit fit = fit_of(target, options, found);
    ASSERT_GT(fit.cells, 20);
    EXPECT_GT(stats.accepted[0], kSamples / 20);
    EXPECT_GT(stats.tried[0] - stats.accepted[0], kSamples / 20);
    EXPECT_LT(fit.chi_square, fit.most());
  }
}

TEST(Drafters, AConfidenceOfTooLittleEndsTheProposal) {
  Target target = tiny::target();
  const Json config = arch::dspark_to_config(dspark(arch::Markov::kVanilla));
  EXPECT_EQ(propose(target, *open(config, target, {.least_confidence = 1}), 16).proposals, 0);
  int64_t before = kBlock;
  for (double least : {0.0, 0.3, 0.5, 0.7}) {
    int64_t count = propose(target, *open(config, target, {.least_confidence = least}), 16).proposals;
    EXPECT_LE(count, before) << least;
    before = count;
  }
  std::unique_ptr<Drafter> never = open(config, target, {.least_confidence = 1});
  std::vector<Prompt> prompts{{0, tiny::ids(5, 1)}};
  SpeculativeStats stats = speculate(target, *never, prompts, {.max_new_tokens = 9}, {4}, [](const Completion&) {});
  EXPECT_EQ(stats.verifications, 8);  // the prefill gives the first token
  EXPECT_EQ(stats.acceptance_length(), 1);
}

TEST(Drafters, ADraftOfAnotherGeometryIsRefused) {
  Target other = tiny::target(Dtype::kF32, tiny::decoder(40));
  for (const Case& c : block_cases()) {
    try {
      open(c.config, other);
      ADD_FAILURE() << c.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kProtocol) << c.name;
    }
  }
}

}  // namespace
}  // namespace sf::gen
