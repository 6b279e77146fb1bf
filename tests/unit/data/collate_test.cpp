// SPDX-License-Identifier: Apache-2.0
#include "data/collate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"

namespace sf::data {
namespace {

constexpr Eagle3Shape kShape{10, 2, 8};

stream::Sample sample(uint64_t position, int64_t length) {
  stream::Sample made;
  made.position = position;
  HostTensor ids(Dtype::kI32, {length}), mask(Dtype::kU8, {length}), top1(Dtype::kI32, {length}),
      lse(Dtype::kF32, {length});
  HostTensor hidden(Dtype::kBF16, {length, 6}), final_norm(Dtype::kF32, {length, 2});
  for (int64_t j = 0; j < length; ++j) {
    ids.as<int32_t>()[j] = static_cast<int32_t>(j + 1);
    mask.as<uint8_t>()[j] = 1;
    lse.as<float>()[j] = 0.5f;
    for (int64_t d = 0; d < 6; ++d) hidden.as<uint16_t>()[j * 6 + d] = float_to_bf16(static_cast<float>(j) + 0.25f);
  }
  made.tensors = {{"input_ids", ids},  {"loss_mask", mask},      {"target_top1", top1},
                  {"target_lse", lse}, {"hidden_state", hidden}, {"final_norm", final_norm}};
  return made;
}

HostTensor& tensor_of(stream::Sample& from, std::string_view name) {
  for (NamedTensor& each : from.tensors)
    if (each.name == name) return each.tensor;
  throw std::logic_error("no such tensor");
}

void expect_refused(const stream::Sample& bad, std::string_view word) {
  try {
    collate_eagle3({&bad, 1}, kShape);
    ADD_FAILURE() << "accepted a sample with a wrong " << word;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
    EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
  }
}

TEST(Collate, RowsArePaddedRightWithZerosAndFeaturesWidened) {
  std::vector<stream::Sample> samples{sample(0, 3), sample(1, 5)};
  Batch batch = collate_eagle3(samples, kShape);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.tokens, 8);
  EXPECT_EQ(batch.tensors["input_ids"].sizes(), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(batch.tensors["input_ids"][0][2].item<int64_t>(), 3);
  EXPECT_EQ(batch.tensors["input_ids"][0][3].item<int64_t>(), 0);
  EXPECT_EQ(batch.tensors["hidden_state"].scalar_type(), at::kFloat);
  EXPECT_EQ(batch.tensors["hidden_state"][1][4][5].item<float>(), 4.25f);
  EXPECT_EQ(batch.tensors["lengths"][1].item<int64_t>(), 5);
}

TEST(Collate, StatesOfEightBitsCountTimesTheirScale) {
  stream::Sample bytes = sample(0, 2);
  HostTensor values(Dtype::kU8, {2, 6}), scale(Dtype::kF32, {2, 3});
  for (size_t i = 0; i < 12; ++i) values.as<uint8_t>()[i] = i % 2 ? 0x38 : 0xb9;  // 1 and -1.125
  for (size_t i = 0; i < 6; ++i) scale.as<float>()[i] = static_cast<float>(i + 1);
  tensor_of(bytes, "hidden_state") = values;
  expect_refused(bytes, "hidden_state.scale");
  bytes.tensors.push_back({"hidden_state.scale", scale});
  Batch batch = collate_eagle3({&bytes, 1}, kShape);
  for (int64_t t = 0; t < 2; ++t)
    for (int64_t i = 0; i < 6; ++i)
      EXPECT_EQ(batch.tensors["hidden_state"][0][t][i].item<float>(),
                (i % 2 ? 1.0f : -1.125f) * static_cast<float>(3 * t + i / 2 + 1));
  tensor_of(bytes, "hidden_state.scale") = HostTensor(Dtype::kF32, {2, 4});
  expect_refused(bytes, "hidden_state.scale");
}

TEST(Collate, VoidSamplesAreLeftOutAndCounted) {
  std::vector<stream::Sample> samples{sample(0, 3), {}, sample(2, 2)};
  samples[1].void_reason = "empty";
  Batch batch = collate_eagle3(samples, kShape);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.voids, 1);
  EXPECT_TRUE(collate_eagle3({&samples[1], 1}, kShape).empty());
}

TEST(Collate, AMissingTensorIsRefused) {
  stream::Sample bad = sample(0, 3);
  bad.tensors.pop_back();
  expect_refused(bad, "final_norm");
}

TEST(Collate, AnotherShapeOrTypeIsRefused) {
  stream::Sample bad = sample(0, 3);
  tensor_of(bad, "hidden_state") = HostTensor(Dtype::kBF16, {3, 5});
  expect_refused(bad, "hidden_state");
  bad = sample(0, 3);
  tensor_of(bad, "loss_mask") = HostTensor(Dtype::kU8, {4});
  expect_refused(bad, "loss_mask");
  bad = sample(0, 3);
  tensor_of(bad, "target_lse") = HostTensor(Dtype::kF64, {3});
  expect_refused(bad, "target_lse");
}

TEST(Collate, IdsOutsideTheVocabularyAreRefused) {
  stream::Sample bad = sample(0, 3);
  tensor_of(bad, "input_ids").as<int32_t>()[1] = 10;
  expect_refused(bad, "input_ids");
  bad = sample(0, 3);
  tensor_of(bad, "target_top1").as<int32_t>()[1] = -1;
  expect_refused(bad, "target_top1");
}

TEST(Collate, FineTuningLearnsTheTokenThatFollowsWhereItIsSupervised) {
  std::vector<stream::Sample> samples{sample(0, 2), sample(1, 5)};
  tensor_of(samples[1], "loss_mask").as<uint8_t>()[3] = 0;
  samples.push_back({.position = 2, .void_reason = "no answer"});
  Batch batch = collate_sft(samples, 10, 8);
  auto rows = [&](const char* name, int64_t row) {
    const int64_t* data = batch.tensors.at(name).const_data_ptr<int64_t>() + 5 * row;
    return std::vector<int64_t>(data, data + 5);
  };
  EXPECT_EQ(rows("ids", 0), (std::vector<int64_t>{1, 2, 0, 0, 0}));
  EXPECT_EQ(rows("labels", 0), (std::vector<int64_t>{2, -1, -1, -1, -1}));
  EXPECT_EQ(rows("labels", 1), (std::vector<int64_t>{2, 3, -1, 5, -1}));
  EXPECT_EQ(rows("positions", 1), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(batch.voids, 1);
  EXPECT_EQ(batch.tokens, 7);
}

TEST(Collate, FineTuningRefusesWhatIsNoSample) {
  for (const char* name : {"input_ids", "loss_mask"}) {
    stream::Sample bad = sample(0, 3);
    tensor_of(bad, name) = HostTensor(Dtype::kI64, {3});
    EXPECT_THROW(collate_sft({&bad, 1}, 10, 8), Error) << name;
  }
  stream::Sample bad = sample(0, 3);
  tensor_of(bad, "input_ids").as<int32_t>()[0] = 10;
  EXPECT_THROW(collate_sft({&bad, 1}, 10, 8), Error);
  bad = sample(0, 9);
  EXPECT_THROW(collate_sft({&bad, 1}, 10, 8), Error);
}

TEST(Collate, LengthsBeyondTheContractAreRefused) {
  expect_refused(sample(0, 9), "9 tokens");
  expect_refused(sample(0, 0), "0 tokens");
}

TEST(Anchors, AreSupervisedPairsDrawnBySeedAndPositionAlone) {
  std::vector<uint8_t> mask(40, 1);
  mask[7] = mask[21] = 0;
  auto drawn = draw_anchors(mask, 12, 3, 100);
  ASSERT_EQ(drawn.size(), 12U);
  EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
  EXPECT_EQ(std::set(drawn.begin(), drawn.end()).size(), 12U);
  for (int64_t p : drawn) EXPECT_TRUE(mask[static_cast<size_t>(p)] && mask[static_cast<size_t>(p) + 1]) << p;
  EXPECT_EQ(draw_anchors(mask, 12, 3, 100), drawn);
  EXPECT_NE(draw_anchors(mask, 12, 3, 101), drawn);
  EXPECT_NE(draw_anchors(mask, 12, 4, 100), drawn);
}

TEST(Anchors, AreAllOfThemWhereTheyAreFew) {
  EXPECT_EQ(draw_anchors(std::vector<uint8_t>{0, 1, 1, 1, 0, 1, 1}, 512, 3, 0), (std::vector<int64_t>{1, 2, 5}));
  EXPECT_TRUE(draw_anchors(std::vector<uint8_t>{0, 1, 0, 1}, 512, 3, 0).empty());
}

TEST(Depths, AreDrawnFromTheDepthBeforeBySeedAndPositionAlone) {
  std::vector<uint8_t> mask(60, 1);
  for (size_t i : {0, 1, 2, 20, 21, 40}) mask[i] = 0;
  DepthRule rule{.depths = 5, .ratio = 0.7, .least = 0.3, .seed = 3};
  DepthRows drawn = draw_depths(mask, rule, 100);
  std::map<int64_t, std::vector<int64_t>> by_depth;
  for (size_t n = 0; n < drawn.anchors.size(); ++n) by_depth[drawn.depths[n]].push_back(drawn.anchors[n]);
  ASSERT_EQ(by_depth.size(), 4U);
  for (auto& [depth, anchors] : by_depth) {
    // 54 indices are supervised, by the mask one further; where fewer could be drawn, all are.
    double share = std::max(std::pow(0.7, static_cast<double>(depth)), 0.3);
    int64_t eligible = 0;
    for (int64_t anchor = 0; anchor + depth + 1 < 60; ++anchor)
      eligible += mask[static_cast<size_t>(anchor + depth + 1)] &&
                  (depth == 1 || std::count(by_depth[depth - 1].begin(), by_depth[depth - 1].end(), anchor) == 1);
    EXPECT_EQ(std::ssize(anchors), std::min(eligible, static_cast<int64_t>((54 - static_cast<double>(depth)) * share)))
        << depth;
    EXPECT_TRUE(std::is_sorted(anchors.begin(), anchors.end()));
    for (int64_t anchor : anchors) {
      EXPECT_TRUE(mask[static_cast<size_t>(anchor + depth + 1)]);
      EXPECT_TRUE(depth == 1 || std::count(by_depth[depth - 1].begin(), by_depth[depth - 1].end(), anchor) == 1);
    }
  }
  EXPECT_EQ(draw_depths(mask, rule, 100).anchors, drawn.anchors);
  EXPECT_NE(draw_depths(mask, rule, 101).anchors, drawn.anchors);
  rule.seed = 4;
  EXPECT_NE(draw_depths(mask, rule, 100).anchors, drawn.anchors);
}

TEST(Depths, EndWhereNothingIsSupervised) {
  EXPECT_TRUE(draw_depths(std::vector<uint8_t>(9, 0), {.depths = 8, .seed = 1}, 0).anchors.empty());
  EXPECT_TRUE(draw_depths({}, {.depths = 8, .seed = 1}, 0).anchors.empty());
  DepthRows one = draw_depths(std::vector<uint8_t>{0, 1, 1, 1}, {.depths = 8, .ratio = 1, .seed = 1}, 0);
  EXPECT_EQ(one.anchors, (std::vector<int64_t>{0, 1, 0}));
  EXPECT_EQ(one.depths, (std::vector<int64_t>{1, 1, 2}));
}

TEST(Collate, OfDflashAddsAnchorsThatPaddingDoesNotChange) {
  auto made = [](uint64_t position, int64_t length) {
    stream::Sample one = sample(position, length);
    for (NamedTensor& each : one.tensors)
      if (each.name == "hidden_state") each.name = "hidden_states";
    return one;
  };
  DflashShape shape{.vocab = 10, .captured = 6, .max_length = 8, .anchors = 2, .seed = 1};
  std::vector<stream::Sample> samples{made(0, 2), made(1, 8)};
  at::Tensor both = collate_dflash(samples, shape).tensors["anchors"];
  at::Tensor alone = collate_dflash(std::span(samples).subspan(1), shape).tensors["anchors"];
  EXPECT_EQ(both.sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(both[0][0].item<int64_t>(), 0);
  EXPECT_EQ(both[0][1].item<int64_t>(), -1);
  EXPECT_TRUE(both[1].equal(alone[0]));
}

}  // namespace
}  // namespace sf::data
