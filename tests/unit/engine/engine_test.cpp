// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "base/error.h"
#include "tensor/memory.h"
#include "toy.h"

namespace sf::engine {
namespace {

std::pair<Exit, std::string> outcome(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {Exit::kOk, ""};
}

// Gradients of one micro-batch by autograd over the whole chain at once.
std::map<std::string, at::Tensor> plain_gradients(Engine& engine, const model::Tensors& batch) {
  std::map<std::string, at::Tensor> weights;
  model::Tensors boundaries = batch;
  for (const auto& parameter : toy::spec().parameters) {
    weights[parameter.name] = engine.gathered(parameter.name).set_requires_grad(parameter.trainable);
  }
  weights["head.weight"] = weights["embed.weight"];
  for (const auto& segment : toy::segments()) {
    model::Tensors parameters;
    for (const auto& name : segment.parameters) parameters[name] = weights[name];
    for (auto& [name, value] : segment.forward(parameters, boundaries)) boundaries[name] = value;
  }
  std::map<std::string, at::Tensor> gradients;
  for (const auto& parameter : toy::spec().parameters) {
    if (!parameter.trainable) continue;
    gradients[parameter.name] =
        torch::autograd::grad({boundaries["loss"]}, {weights[parameter.name]}, {}, true, false, false)[0];
  }
  return gradients;
}

// Bit for bit, but for the table in front of a boundary that two segments read: the engine adds what each segment
// gives, autograd over the whole chain adds use by use. Three fp32 terms in another order: a unit or two in the last
// place.
TEST(Gradients, OfOneMicroBatchAreAutograds) {
  tensor::set_threads(1);
  auto group = comm::make_single();
  for (Mode mode : {Mode::kKeep, Mode::kRecompute}) {
    Engine engine(*group, toy::spec(), toy::segments(), {.schedule = {.mode = mode}});
    toy::load(engine);
    auto wanted = plain_gradients(engine, toy::micro_batch(0));
    engine.round(toy::micro_batch(0), "loss", {});
    for (const auto& [name, gradient] : wanted) {
      at::Tensor found = engine.gathered_gradient(name);
      bool same = name == "embed.weight" ? at::allclose(found, gradient, 1e-5, 1e-7) : found.equal(gradient);
      EXPECT_TRUE(same) << name;
    }
  }
}

TEST(Step, IsAdamWWithDecoupledDecayOfTheClippedGradient) {
  auto group = comm::make_single();
  Engine engine(*group, toy::spec(), toy::segments(), {});
  toy::load(engine);
  engine.round(toy::micro_batch(0), "loss", {});
  at::Tensor before = engine.gathered("block.0.weight").to(at::kDouble);
  at::Tensor g = engine.gathered_gradient("block.0.weight").to(at::kDouble);
  double squares = 0;
  for (const auto& parameter : toy::spec().parameters) {
    if (parameter.trainable)
      squares += engine.gathered_gradient(parameter.name).to(at::kDouble).pow(2).sum().item<double>();
  }
  AdamW adamw{0.9, 0.99, 1e-8, 0.1};
  StepResult step = engine.step(1e-2, 0.1, adamw);
  EXPECT_NEAR(step.grad_norm, std::sqrt(squares), 1e-12);
  EXPECT_EQ(engine.steps_done(), 1);
  g = g * std::min(1.0, 0.1 / (std::sqrt(squares) + 1e-6));
  at::Tensor m = g * (1 - adamw.beta1), v = g * g * (1 - adamw.beta2);
  at::Tensor wanted = before * (1 - 1e-2 * adamw.weight_decay) -
                      1e-2 / (1 - adamw.beta1) * m / (v.sqrt() / std::sqrt(1 - adamw.beta2) + adamw.eps);
  // fp32 against fp64 of the same formula: a few units in the last place
  EXPECT_TRUE(at::allclose(engine.gathered("block.0.weight").to(at::kDouble), wanted, 1e-6, 1e-7));
  EXPECT_EQ(engine.gathered_gradient("block.0.weight").abs().max().item<float>(), 0.0f);
}

TEST(Step, OfANonFiniteGradientChangesNothingAndNamesTheCulpritOnEveryRank) {
  std::vector<std::string> culprits(2);
  comm::run_threads(2, [&](comm::Group& group) {
    tensor::set_threads(1);
    auto segments = toy::segments();
    auto plain = segments[2].forward;
    segments[2].forward = [plain](const model::Tensors& p, const model::Tensors& b) {
      auto out = plain(p, b);
      if (b.at("h.0").size(0) == 4) out["h.1"] = out["h.1"] * INFINITY;
      return out;
    };
    Engine engine(group, toy::spec(), segments, {});
    toy::load(engine);
    at::Tensor before = engine.gathered("block.0.weight");
    for (int64_t round = 0; round < 2; ++round) {
      auto batch = toy::micro_batch(static_cast<uint64_t>(round));
      if (round == 1 && group.rank() == 1) {
        for (auto& [name, value] : batch) value = value.narrow(0, 0, 4).contiguous();
      }
      engine.round(batch, "loss", {});
    }
    StepResult step = engine.step(1e-2, 1.0, {});
    EXPECT_TRUE(step.skipped);
    EXPECT_EQ(engine.steps_done(), 0);
    culprits[static_cast<size_t>(group.rank())] = step.culprit;
    EXPECT_TRUE(engine.gathered("block.0.weight").equal(before));
    engine.round(toy::micro_batch(0), "loss", {});  // and the next window is clean
    EXPECT_FALSE(engine.step(1e-2, 1.0, {}).skipped);
  });
  EXPECT_EQ(culprits[0], "parameter embed.weight, rank 1, micro-batch 3");
  EXPECT_EQ(culprits[1], culprits[0]);
}

TEST(Step, NamesAParameterWithoutGradientOnceAndTreatsItAsZero) {
  auto group = comm::make_single();
  auto segments = toy::segments();
  segments[2].forward = [](const model::Tensors&, const model::Tensors& b) {
    return model::Tensors{{"h.1", b.at("h.0") * 2.0}};
  };
  Engine engine(*group, toy::spec(), segments, {});
  toy::load(engine);
  engine.round(toy::micro_batch(0), "loss", {});
  EXPECT_EQ(engine.gathered_gradient("block.0.gain").abs().max().item<float>(), 0.0f);
  EXPECT_EQ(engine.step(1e-2, 0, {}).unused, (std::vector<std::string>{"block.0.weight", "block.0.gain"}));
  engine.round(toy::micro_batch(1), "loss", {});
  EXPECT_TRUE(engine.step(1e-2, 0, {}).unused.empty());
}

TEST(Resume, FromAnyWorldToAnyOtherGivesTheBitsOfAnUninterruptedRun) {
  toy::Course run{.micro_batches = 12, .windows = 3};
  auto alone = toy::train(*comm::make_single(), run);
  std::map<std::string, std::vector<float>> saved;
  for (const char* part : {"", ".exp_avg", ".exp_avg_sq"}) {
    for (const auto& parameter : toy::spec().parameters) {
      saved[parameter.name + part].resize(static_cast<size_t>(numel(parameter.shape)));
    }
  }
  comm::run_threads(3, [&](comm::Group& group) {
    tensor::set_threads(1);
    Engine engine(group, toy::spec(), toy::segments(), {});
    toy::load(engine);
    toy::train(engine, {.micro_batches = 12, .windows = 2});
    for (const auto& piece : engine.state()) {  // intervals of different ranks never overlap
      std::copy(piece.values.begin(), piece.values.end(), saved.at(piece.name).begin() + piece.interval.lo);
    }
  });
  std::vector<float> resumed;
  comm::run_threads(2, [&](comm::Group& group) {
    tensor::set_threads(1);
    Engine engine(group, toy::spec(), toy::segments(), {});
    toy::load(engine);
    for (const auto& piece : engine.state()) {
      const auto& whole = saved.at(piece.name);
      engine.load_state(piece.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
        std::copy(whole.begin() + lo, whole.begin() + hi, to.begin());
      });
    }
    engine.set_steps_done(2);
    auto record = toy::train(engine, run, 2);
    if (group.rank() == 0) resumed = record;
  });
  EXPECT_TRUE(toy::same_bits(resumed, {alone.begin() + 2 * 13, alone.end()}));
}

TEST(Plan, ADifferenceBetweenRanksIsRefusedNamingItsFirstLine) {
  auto run = [] {
    comm::run_threads(2, [](comm::Group& group) {
      EngineOptions options;
      if (group.rank() == 1) options.schedule.mode = Mode::kRecompute;
      Engine engine(group, toy::spec(), toy::segments(), options);
      toy::load(engine);
      engine.round(toy::micro_batch(0), "loss", {});
    });
  };
  auto [code, text] = outcome(run);
  EXPECT_EQ(code, Exit::kProtocol);
  EXPECT_NE(text.find("plans differ between rank 0 (here) and rank 1 (there): line 1: "), std::string::npos) << text;
  EXPECT_NE(text.find("mode recompute, prefetch 0, gradients reduce_each\" there"), std::string::npos) << text;
}

TEST(Memory, MeasuredIsPredictedToTheByteOnEveryRank) {
  tensor::install_allocator();
  for (Dtype compute : {Dtype::kF32, Dtype::kBF16}) {
    for (int world : {1, 2, 3}) {
      auto groups = comm::make_threads(world);
      for (auto& group : groups) {
        Engine engine(*group, toy::spec(), toy::segments(), {.schedule = {.compute = compute}});
        EXPECT_EQ(engine.measured().at_rest, engine.predicted().at_rest) << world << " rank " << group->rank();
      }
    }
  }
}

TEST(Memory, ASteadyStepAsksTheSystemForNothing) {
  tensor::install_allocator();
  auto group = comm::make_single();
  Engine engine(*group, toy::spec(), toy::segments(), {});
  toy::load(engine);
  for (int step = 0; step < 3; ++step) {
    if (step == 2) tensor::mark_memory();
    toy::window(engine, 2, 0);
    engine.step(1e-2, 1.0, {});
  }
  EXPECT_EQ(tensor::memory().os_requests, 0u);
}

TEST(Forward, GivesTheLossOfARoundWithoutAGraph) {
  auto group = comm::make_single();
  Engine engine(*group, toy::spec(), toy::segments(), {});
  toy::load(engine);
  at::Tensor loss = engine.forward(toy::micro_batch(4), {"loss"}).at("loss");
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_TRUE(loss.equal(engine.round(toy::micro_batch(4), "loss", {"loss"}).at("loss")));
}

TEST(Errors, AreNamed) {
  auto group = comm::make_single();
  auto with = [&](const std::function<void(std::vector<model::Segment>&)>& change) {
    auto segments = toy::segments();
    change(segments);
    auto engine = std::make_unique<Engine>(*group, toy::spec(), segments, EngineOptions{});
    toy::load(*engine);
    return outcome([&] { engine->round(toy::micro_batch(0), "loss", {}); }).second;
  };
  EXPECT_NE(with([](auto& s) {
              s[0].forward = [](const auto& p, const auto&) {
                return model::Tensors{{"h.position", p.at("position.weight").view({toy::kLength, toy::kDim})}};
              };
            }).find("segment position: boundary h.position lies in the memory of a parameter"),
            std::string::npos);
  EXPECT_NE(with([](auto& s) { s[2].reads.push_back("h.9"); }).find("reads boundary h.9"), std::string::npos);
  EXPECT_NE(with([](auto& s) { s[2].writes.push_back("h.8"); }).find("segment block.0 did not write boundary h.8"),
            std::string::npos);
  Engine engine(*group, toy::spec(), toy::segments(), {});
  EXPECT_NE(outcome([&] {
              engine.round(toy::micro_batch(0), "loss", {});
            }).second.find("parameter embed.weight was never loaded"),
            std::string::npos);
  EXPECT_EQ(outcome([&] { engine.load("embed", {}); }).second, "no parameter embed");
}

TEST(Errors, OfOneRankEndTheRoundOnAll) {
  std::string news;
  auto run = [&] {
    comm::run_threads(2, [&](comm::Group& group) {
      tensor::set_threads(1);
      auto segments = toy::segments();
      if (group.rank() == 1) {
        segments[3].forward = [](const auto&, const auto&) -> model::Tensors {
          fail(Exit::kData, "a target above 36");
        };
      }
      Engine engine(group, toy::spec(), segments, {});
      toy::load(engine);
      auto [code, text] = outcome([&] { engine.round(toy::micro_batch(0), "loss", {}); });
      if (group.rank() == 0) news = text;
      if (code != Exit::kOk) throw Error(code, text);
    });
  };
  EXPECT_EQ(outcome(run).second, "segment block.1: a target above 36");
  EXPECT_NE(news.find("gave up: segment block.1: a target above 36; rank 0 waits in"), std::string::npos) << news;
}

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(Plan, TextHasEveryCollectiveOfAWindow) {
  comm::run_threads(2, [](comm::Group& group) {
    tensor::set_threads(1);
    Engine engine(group, toy::spec(), toy::segments(), {});
    toy::load(engine);
    std::string text = engine.plan_text();
    std::vector<uint64_t> calls;
    for (uint64_t round = 0; round < 3; ++round) {
      uint64_t before = group.traffic().calls;
      engine.round(toy::micro_batch(round), "loss", {});
      calls.push_back(group.traffic().calls - before);
    }
    EXPECT_EQ(calls[0], 1 + count_of(text, "first round: ")) << text;  // one more compares the plans
    EXPECT_EQ(calls[1], count_of(text, "later round: "));
    EXPECT_EQ(calls[2], calls[1]);
    uint64_t before = group.traffic().calls;
    engine.step(1e-2, 1.0, {});
    EXPECT_EQ(group.traffic().calls - before, 2u);
  });
}

// One segment: gathered once a window, and again after the step, or the ranks would go on with old weights.
TEST(Plan, AGroupStaysInItsSlotUntilTheStep) {
  arch::ModelSpec spec;
  spec.parameters = {{"w", {8, 3}, true, ""}};
  model::Segment only{"only", {"w"}, {"x"}, {"loss"}, [](const model::Tensors& p, const model::Tensors& b) {
                        return model::Tensors{{"loss", at::linear(b.at("x"), p.at("w")).pow(2).sum()}};
                      }};
  comm::run_threads(2, [&](comm::Group& group) {
    tensor::set_threads(1);
    Engine engine(group, spec, {only}, {});
    engine.load("w", [](int64_t, int64_t, std::span<float> to) { std::fill(to.begin(), to.end(), 1.0f); });
    model::Tensors x{{"x", at::full({1, 3}, 1.0f)}};
    float first = engine.round(x, "loss", {"loss"}).at("loss").item<float>();
    uint64_t before = group.traffic().calls;
    EXPECT_EQ(engine.round(x, "loss", {"loss"}).at("loss").item<float>(), first);
    EXPECT_EQ(group.traffic().calls - before, 1u);  // the fold
    engine.step(0.1, 0, {});
    EXPECT_LT(engine.round(x, "loss", {"loss"}).at("loss").item<float>(), first);
  });
}

}  // namespace
}  // namespace sf::engine
