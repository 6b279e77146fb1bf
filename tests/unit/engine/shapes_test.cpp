// SPDX-License-Identifier: Apache-2.0
// Every shape of trouble in one group: uneven rows, one row, no dimension, no element, two compute types, frozen beside
// trainable, a table under two names in one segment and under a third in another, a parameter nothing reads.
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "toy.h"

namespace sf::engine {
namespace {

constexpr int64_t kWords = 7, kWidth = 4, kTokens = 6;

arch::ModelSpec zoo() {
  arch::ModelSpec spec;
  spec.parameters = {
      {"table", {kWords, kWidth}, true, ""}, {"scale", {}, true, ""},         {"row", {1, kWidth}, true, ""},
      {"gain", {kWidth}, true, ""},          {"mix", {5, kWidth}, false, ""}, {"empty", {0, kWidth}, false, ""},
      {"never", {3, 2}, true, ""},           {"norm", {kWidth}, false, ""},   {"tall", {11, 1}, true, ""}};
  spec.aliases = {{"table.again", "table"}, {"head", "table"}};
  return spec;
}

std::vector<model::Segment> chain() {
  using model::Tensors;
  return {{"low",
           {"table", "table.again", "scale", "row", "gain", "mix", "empty", "never"},
           {"ids"},
           {"h"},
           [](const Tensors& p, const Tensors& b) {
             at::Tensor h = at::embedding(p.at("table"), b.at("ids")) * p.at("scale") + p.at("row");
             h = h + at::embedding(p.at("table.again"), b.at("ids").add(1).remainder(kWords));
             h = (h.to(at::kFloat) * p.at("gain")).to(h.scalar_type());  // gain is fp32 whatever the rest
             at::Tensor mixed = at::linear(at::tanh(at::linear(h, p.at("mix"))), p.at("mix").t());
             return Tensors{{"h", h + mixed}};
           }},
          {"top", {"norm", "head", "tall"}, {"h", "targets"}, {"loss"}, [](const Tensors& p, const Tensors& b) {
             at::Tensor h = (b.at("h").to(at::kFloat) * p.at("norm")).to(b.at("h").scalar_type());
             at::Tensor logits = at::linear(h, p.at("head")).to(at::kFloat) + p.at("tall").to(at::kFloat).sum();
             logits = logits * p.at("tall").to(at::kFloat).narrow(0, 0, kWords).view({kWords});
             return Tensors{{"loss", at::cross_entropy_loss(logits, b.at("targets"))}};
           }}};
}

model::Tensors batch(uint64_t number) {
  Rng rng(8, "zoo");
  std::vector<int64_t> ids, targets;
  for (uint64_t i = 0; i < kTokens; ++i) {
    ids.push_back(static_cast<int64_t>(rng.below(kWords, number, i)));
    targets.push_back(static_cast<int64_t>(rng.below(kWords, number, 50 + i)));
  }
  return {{"ids", at::tensor(ids)}, {"targets", at::tensor(targets)}};
}

// Norms, names of unused parameters, weights and the types the segments saw.
struct Record {
  std::vector<float> numbers;
  std::vector<std::string> unused;
};

Record train(comm::Group& group, plan::ScheduleOptions schedule, int64_t micro_batches) {
  tensor::set_threads(1);
  schedule.full = {"gain", "norm"};
  Engine engine(group, zoo(), chain(), {.schedule = std::move(schedule)});
  for (const arch::Parameter& parameter : zoo().parameters) {
    Rng rng(4, parameter.name);
    engine.load(parameter.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
      for (int64_t i = lo; i < hi; ++i) to[static_cast<size_t>(i - lo)] = rng.normal(static_cast<uint64_t>(i));
    });
  }
  Record record;
  for (int64_t window = 0; window < 2; ++window) {
    for (int64_t round = 0; round < plan::rounds(micro_batches, group.world()); ++round) {
      int64_t k = round * group.world() + group.rank();
      std::optional<model::Tensors> mine;
      if (k < micro_batches) mine = batch(static_cast<uint64_t>(window * micro_batches + k));
      engine.round(mine, "loss", {"loss"});
    }
    StepResult step = engine.step(1e-2, 0.5, {.weight_decay = 0.01});
    record.numbers.push_back(static_cast<float>(step.grad_norm));
    record.unused.insert(record.unused.end(), step.unused.begin(), step.unused.end());
  }
  for (const arch::Parameter& parameter : zoo().parameters)
    toy::append(record.numbers, engine.gathered(parameter.name));
  return record;
}

Record train_threads(int world, const plan::ScheduleOptions& schedule, int64_t micro_batches) {
  Record record;
  comm::run_threads(world, [&](comm::Group& group) {
    Record mine = train(group, schedule, micro_batches);
    if (group.rank() == 0) record = mine;
  });
  return record;
}

class Zoo : public ::testing::TestWithParam<plan::ScheduleOptions> {};

TEST_P(Zoo, GivesTheBitsOfOneRankOnAnyNumberOfRanks) {
  for (int64_t micro_batches : {1, 5}) {
    plan::ScheduleOptions alone{.compute = GetParam().compute};
    Record wanted = train(*comm::make_single(), alone, micro_batches);
    EXPECT_GT(wanted.numbers[0], 0.5f);  // clipping is active
    for (int world : {1, 2, 3, 4, 7}) {
      Record found = train_threads(world, GetParam(), micro_batches);
      EXPECT_TRUE(toy::same_bits(found.numbers, wanted.numbers)) << world << " ranks, " << micro_batches;
      EXPECT_EQ(found.unused, (std::vector<std::string>{"never"})) << "named once";
    }
  }
}

using plan::Layout;
using plan::Reshard;

INSTANTIATE_TEST_SUITE_P(Forms, Zoo,
                         ::testing::Values(plan::ScheduleOptions{}, plan::ScheduleOptions{.compute = Dtype::kBF16},
                                           plan::ScheduleOptions{.layout = Layout::kFlat, .reshard = Reshard::kGradOp},
                                           plan::ScheduleOptions{.layout = Layout::kFlat, .compute = Dtype::kBF16},
                                           plan::ScheduleOptions{.layout = Layout::kReplicate},
                                           plan::ScheduleOptions{.layout = Layout::kReplicate, .compute = Dtype::kBF16},
                                           plan::ScheduleOptions{
                                               .reshard = Reshard::kNone, .compute = Dtype::kBF16, .prefetch = 1}),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", name_of(info.param.layout), name_of(info.param.reshard),
                                              info.param.compute == Dtype::kF32 ? "f32" : "bf16");
                         });

TEST(ZooOf, OneTableUnderThreeNamesIsOneStorage) {
  auto group = comm::make_single();
  Engine engine(*group, zoo(), chain(), {});
  const plan::Schedule& plan = engine.schedule();
  EXPECT_EQ(plan.groups[0].members.size(), 7u);
  EXPECT_EQ(plan.parameters[0].groups, (std::vector<size_t>{0, 1}));
}

TEST(ZooOf, ARankWithoutElementsTakesPartAlike) {
  plan::ScheduleOptions options{.world = 7};
  plan::Schedule plan = make_plan(zoo(), chain(), {.schedule = options}, 7);
  EXPECT_TRUE(plan.parameters[1].intervals[6].empty());  // the scalar is rank 0's
  EXPECT_TRUE(plan.parameters[3].owned[5].empty());      // four elements for seven ranks
}

}  // namespace
}  // namespace sf::engine
