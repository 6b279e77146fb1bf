// SPDX-License-Identifier: Apache-2.0
// The same engine, its segments computed on a device of their own: bits that do not depend on ranks, modes and
// residencies, and values as on the host.
#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "dflash_toy.h"
#include "eagle3_toy.h"
#include "fake_device.h"
#include "model/dflash2.h"
#include "model/domino.h"
#include "model/dspark.h"
#include "model/peagle.h"
#include "model/sft.h"
#include "tensor/device.h"
#include "toy.h"

namespace sf::engine {
namespace {

constexpr int64_t kWindow = 3, kChunk = 40;

// What is trained: a target's parameters, or a draft.
struct Work {
  const char* name;
  arch::ModelSpec spec;
  std::vector<model::Segment> segments;
  std::function<model::Tensors(uint64_t number, Dtype compute)> batch;
};

arch::Decoder target() {
  arch::Decoder d;
  d.family = "qwen3", d.architecture = "LlamaForCausalLM";
  d.vocab = 90, d.hidden = 24, d.intermediate = 40, d.layers = 3, d.heads = 4, d.kv_heads = 2, d.head_dim = 8;
  d.max_positions = 64, d.tied = true, d.qk_norm = true;
  d.windows = {0, 5, 0};
  return d;
}

model::Tensors sft_batch(uint64_t number, Dtype) {
  constexpr int64_t kRows = 2, kTokens = 17;
  Rng rng(41, "sft batch");
  at::Tensor ids = at::zeros({kRows, kTokens}, at::kLong), labels = at::full({kRows, kTokens}, -1, at::kLong);
  at::Tensor mask = at::full({kRows, kTokens}, 1, at::kLong);
  mask.select(0, 1).narrow(0, 11, kTokens - 11).fill_(0);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(rng.below(90, number, static_cast<uint64_t>(i)));
    if (i % 3 != 0 && mask.const_data_ptr<int64_t>()[i] != 0)
      labels.mutable_data_ptr<int64_t>()[i] =
          static_cast<int64_t>(rng.below(90, number, 500 + static_cast<uint64_t>(i)));
  }
  return {{"ids", ids},
          {"labels", labels},
          {"attention_mask", mask},
          {"positions", at::arange(kTokens, at::kLong).expand({kRows, kTokens}).contiguous()},
          {"label_weight", at::scalar_tensor(0.02, at::kFloat)}};
}

Work sft() {
  return {"sft", arch::describe_training(target()), model::sft_segments(target()), sft_batch};
}
Work eagle3() {
  static const toy::Draft draft;
  return {"eagle3", arch::describe_training(draft.config),
          model::eagle3_segments(draft.config, draft.vocabulary, draft.options),
          [](uint64_t number, Dtype compute) { return toy::eagle3_batch(draft, number, compute); }};
}
Work dflash() {
  return {"dflash", arch::describe_training(toy::draft(), false), model::dflash_segments(toy::draft(), false, {kChunk}),
          toy::dflash_batch};
}

Work experts() {
  arch::Decoder moe = target();
  moe.family = "qwen3_moe", moe.architecture = "Qwen3MoeForCausalLM", moe.tied = false;
  moe.experts.count = 4, moe.experts.chosen = 2, moe.experts.width = 16, moe.experts.layers = {true, true, true};
  return {"experts", arch::describe_training(moe), model::sft_segments(moe), sft_batch};
}

// A draft in blocks with DFlash's micro-batches, and what its head reads besides.
template <typename Draft>
Draft in_blocks() {
  Draft d;
  static_cast<arch::Dflash&>(d) = toy::draft();
  return d;
}
model::Tensors block_batch(uint64_t number, Dtype compute) {
  model::Tensors batch = toy::dflash_batch(number, compute);
  Rng rng(42, "block batch");
  at::Tensor states = at::zeros({2, 19, 16}, at::kFloat);
  for (int64_t i = 0; i < states.numel(); ++i)
    states.mutable_data_ptr<float>()[i] = rng.normal(number, static_cast<uint64_t>(i));
  batch["final_norm"] = states.to(tensor::to_scalar(compute));
  batch["selector_share"] = batch["base_share"] = at::scalar_tensor(0.4, at::kFloat);
  return batch;
}
Work dflash2() {
  auto d = in_blocks<arch::Dflash2>();
  d.taps = 2, d.group = 4, d.rank = 5, d.top_k = 6, d.softcap = 3;
  return {"dflash2", arch::describe_training(d, false), model::dflash2_segments(d, false, {}), block_batch};
}
Work domino() {
  auto d = in_blocks<arch::Domino>();
  d.projection = 6, d.state = 10;
  return {"domino", arch::describe_training(d, false), model::domino_segments(d, false, {}), block_batch};
}
Work dspark() {
  auto d = in_blocks<arch::Dspark>();
  d.rank = 7, d.markov = arch::Markov::kRnn, d.confidence_with_markov = true;
  return {"dspark", arch::describe_training(d, false), model::dspark_segments(d, false, {}), block_batch};
}
Work peagle() {
  static const toy::Draft like;
  arch::Peagle d;
  static_cast<arch::DraftShape&>(d) = like.config;
  d.draft_vocab = like.config.draft_vocab, d.target_hidden = like.config.target_hidden, d.mask_token = 96, d.layers = 2;
  auto batch = [](uint64_t number, Dtype compute) {
    model::Tensors made = toy::eagle3_batch(like, number, compute);
    made["cod_anchors"] = at::tensor({2l, 4l, 7l, 2l, 7l}, at::kLong).expand({2, 5}).contiguous();
    made["cod_depths"] = at::tensor({1l, 1l, 1l, 2l, 2l}, at::kLong).expand({2, 5}).contiguous();
    made["label_weight"] = at::scalar_tensor(0.02, at::kFloat);
    return made;
  };
  return {"peagle", arch::describe_training(d), model::peagle_segments(d, like.vocabulary, {.depths = 3}), batch};
}

// Two windows: losses of micro-batches by this rank alone where there is one, then norms and weights.
std::vector<float> train(comm::Group& group, const Work& work, EngineOptions options) {
  options.spill_dir = std::filesystem::temp_directory_path();
  Engine engine(group, work.spec, work.segments, options);
  toy::load(engine, work.spec);
  std::vector<float> record;
  for (uint64_t window = 0; window < 2; ++window) {
    for (int64_t round = 0; round < plan::rounds(kWindow, group.world()); ++round) {
      int64_t k = round * group.world() + group.rank();
      std::optional<model::Tensors> mine;
      if (k < kWindow) mine = work.batch(window * kWindow + static_cast<uint64_t>(k), options.schedule.compute);
      model::Tensors kept = engine.round(mine, "loss", {"loss"});
      if (!mine) continue;
      EXPECT_TRUE(kept.at("loss").is_cpu());
      if (group.world() == 1) record.push_back(kept.at("loss").item<float>());
    }
    // A large eps: the step is smooth in a gradient near zero, so that rounding stays rounding.
    record.push_back(static_cast<float>(engine.step(1e-2, 0.5, {.eps = 1e-2}).grad_norm));
  }
  for (const arch::Parameter& p : work.spec.parameters)
    if (p.trainable) toy::append(record, engine.gathered(p.name));
  return record;
}

std::vector<float> on_ranks(int world, const Work& work, const EngineOptions& options) {
  tensor::set_threads(1);  // before autograd makes its thread of the device, which takes it over
  std::vector<float> record;
  comm::run_threads(world, [&](comm::Group& group) {
    auto mine = train(group, work, options);
    if (group.rank() == 0) record = mine;
  });
  return record;
}

EngineOptions on_device(Dtype compute, Mode mode = Mode::kKeep) {
  return {.schedule = {.compute = compute, .mode = mode}, .device = fake_device()};
}

class OnADevice : public ::testing::TestWithParam<Work (*)()> {};

void expect_the_hosts_losses(const Work& work, Dtype compute, double bound) {
  std::vector<float> there = on_ranks(1, work, on_device(compute));
  std::vector<float> here = on_ranks(1, work, {.schedule = {.compute = compute}});
  ASSERT_EQ(there.size(), here.size());
  for (size_t i = 0; i < here.size(); ++i)
    ASSERT_NEAR(there[i], here[i], bound * std::max(1.0f, std::abs(here[i]))) << i << " " << name_of(compute);
}

TEST_P(OnADevice, ALossIsTheHostsWithinRounding) {
  expect_the_hosts_losses(GetParam()(), Dtype::kF32, 2e-4);
  expect_the_hosts_losses(GetParam()(), Dtype::kBF16, 0.05);
}

TEST_P(OnADevice, RebuildingAGraphChangesNoBit) {
  Work work = GetParam()();
  std::vector<float> kept = on_ranks(1, work, on_device(Dtype::kF32));
  for (Mode mode : {Mode::kRecompute, Mode::kOffload})
    EXPECT_TRUE(toy::same_bits(on_ranks(1, work, on_device(Dtype::kF32, mode)), kept)) << plan::name_of(mode);
}

TEST_P(OnADevice, RanksChangeNoBit) {
  Work work = GetParam()();
  std::vector<float> alone = on_ranks(1, work, on_device(Dtype::kBF16));
  std::vector<float> shared(alone.begin() + kWindow,
                            alone.end());  // without the losses, which each rank has of its own
  shared.erase(shared.begin() + 1, shared.begin() + 1 + kWindow);
  for (int world : {2, 3}) EXPECT_TRUE(toy::same_bits(on_ranks(world, work, on_device(Dtype::kBF16)), shared)) << world;
}

// Autograd's thread of the device gives up its last task a moment after the caller heard of its end.
uint64_t bytes_when_quiet(uint64_t wanted) {
  for (int waited_ms = 0; fake_device_bytes() != wanted && waited_ms < 5000; ++waited_ms) usleep(1000);
  return fake_device_bytes();
}

TEST_P(OnADevice, NothingStaysThereButFrozenParametersThatAreWhole) {
  Work work = GetParam()();
  comm::run_threads(1, [&](comm::Group& group) {
    Engine engine(group, work.spec, work.segments, on_device(Dtype::kF32));
    toy::load(engine, work.spec);
    engine.round(work.batch(0, Dtype::kF32), "loss", {"loss"});
    uint64_t frozen = 0, page = 4096;
    for (const arch::Parameter& p : work.spec.parameters)
      if (!p.trainable) frozen += (static_cast<uint64_t>(numel(p.shape)) * sizeof(float) + page - 1) / page * page;
    EXPECT_EQ(bytes_when_quiet(frozen), frozen);
    EXPECT_GT(engine.measured().device_peak, frozen);
  });
  EXPECT_EQ(bytes_when_quiet(0), 0u);
}

const auto kNames = [](const auto& info) { return info.param().name; };
INSTANTIATE_TEST_SUITE_P(Training, OnADevice, ::testing::Values(&sft, &eagle3, &dflash), kNames);

class AnyOnADevice : public ::testing::TestWithParam<Work (*)()> {};

TEST_P(AnyOnADevice, ALossIsTheHostsWithinRounding) {
  expect_the_hosts_losses(GetParam()(), Dtype::kF32, 2e-4);
}

INSTANTIATE_TEST_SUITE_P(Training, AnyOnADevice, ::testing::Values(&experts, &dflash2, &domino, &dspark, &peagle),
                         kNames);

TEST(TablesOfADevice, GiveTheBitsOfWholeOnesWhereverTheyLive) {
  using plan::Residency;
  std::vector<float> whole;
  for (auto [embedding, head] :
       {std::pair(Residency::kReplicate, Residency::kReplicate), std::pair(Residency::kShard, Residency::kShard),
        std::pair(Residency::kRows, Residency::kStream), std::pair(Residency::kHost, Residency::kHost)}) {
    EngineOptions options = on_device(Dtype::kBF16);
    options.schedule.tables = {{arch::kTargetEmbedding, embedding}, {arch::kTargetHead, head}};
    std::vector<float> record = on_ranks(2, dflash(), options);
    if (whole.empty()) whole = record;
    EXPECT_TRUE(toy::same_bits(record, whole)) << plan::name_of(embedding) << " " << plan::name_of(head);
  }
}

}  // namespace
}  // namespace sf::engine
