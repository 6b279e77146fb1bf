// SPDX-License-Identifier: Apache-2.0
// What a run does against what its plan says: calls, bytes, memory; and what is only bounded.
#include <gtest/gtest.h>

#include <ATen/ops/from_blob.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "tensor/memory.h"
#include "toy.h"

namespace sf::engine {
namespace {

using plan::Layout;
using plan::Reshard;

const std::vector<plan::ScheduleOptions>& forms() {
  static const std::vector<plan::ScheduleOptions> all{
      {},
      {.layout = Layout::kFlat, .reshard = Reshard::kGradOp},
      {.reshard = Reshard::kNone, .compute = Dtype::kBF16},
      {.layout = Layout::kReplicate},
      {.layout = Layout::kReplicate, .compute = Dtype::kBF16},
      {.mode = Mode::kRecompute, .prefetch = 1},
      {.reshard = Reshard::kGradOp, .prefetch = 3},
      {.local = true},
  };
  return all;
}

TEST(Calls, OfEveryRoundAndStepAreThoseOfThePlan) {
  for (const plan::ScheduleOptions& form : forms()) {
    comm::run_threads(3, [&](comm::Group& group) {
      tensor::set_threads(1);
      Engine engine(group, toy::spec(), toy::segments(), {.schedule = form});
      toy::load(engine);
      const plan::Schedule& plan = engine.schedule();
      std::vector<size_t> wanted{plan.round.size() + 1, plan.later.size()};  // one more compares the plans
      for (size_t round = 0; round < 2; ++round) {
        uint64_t before = group.traffic().calls;
        engine.round(toy::micro_batch(round), "loss", {});
        EXPECT_EQ(group.traffic().calls - before, wanted[round]) << plan.text();
      }
      uint64_t before = group.traffic().calls;
      engine.step(1e-2, 1.0, {});
      EXPECT_EQ(group.traffic().calls - before, 2 + plan.step.size()) << plan.text();
    });
  }
}

TEST(Memory, AtRestIsPredictedToTheByteInEveryForm) {
  tensor::install_allocator();
  for (plan::ScheduleOptions form : forms()) {
    for (int replicas : {1, 2}) {
      if (form.layout != Layout::kReplicate) form.replicas = replicas;
      auto groups = comm::make_threads(4);
      for (auto& group : groups) {
        Engine engine(*group, toy::spec(), toy::segments(), {.schedule = form});
        EXPECT_EQ(engine.measured().at_rest, engine.predicted().at_rest) << engine.plan_text();
      }
    }
  }
}

TEST(Memory, ASteadyStepOfSeveralRanksAsksTheSystemForNothing) {
  tensor::install_allocator();
  for (int prefetch : {0, 1}) {
    comm::run_threads(2, [&](comm::Group& group) {
      tensor::set_threads(1);
      Engine engine(group, toy::spec(), toy::segments(), {.schedule = {.prefetch = prefetch}});
      toy::load(engine);
      auto barrier = [&] { group.barrier({"all here", Deadline::after_ms(20'000)}); };
      for (int step = 0; step < 4; ++step) {
        barrier();
        if (step == 3 && group.rank() == 0) tensor::mark_memory();
        barrier();
        toy::window(engine, 4, 0);
        engine.step(1e-2, 1.0, {});
      }
      barrier();
      EXPECT_EQ(tensor::memory().os_requests, 0u);
    });
  }
}

// A chain whose boundaries outweigh all else.
std::vector<model::Segment> wide_chain(int depth) {
  std::vector<model::Segment> segments;
  for (int s = 0; s < depth; ++s) {
    std::string name = "w" + std::to_string(s), in = "h" + std::to_string(s), out = "h" + std::to_string(s + 1);
    bool last = s + 1 == depth;
    segments.push_back(
        {name, {name}, {in}, {last ? "loss" : out}, [=](const model::Tensors& p, const model::Tensors& b) {
           at::Tensor h = at::tanh(at::linear(b.at(in), p.at(name)));
           return model::Tensors{{last ? "loss" : out, last ? h.pow(2).sum() : h}};
         }});
  }
  return segments;
}

TEST(Memory, OffloadHoldsTheBoundariesOfOneSegmentAtATime) {
  tensor::install_allocator();
  constexpr int kDepth = 8;
  constexpr uint64_t kBoundary = 4096 * 16 * sizeof(float);
  std::map<Mode, uint64_t> peak;
  for (Mode mode : {Mode::kRecompute, Mode::kOffload}) {
    arch::ModelSpec spec;
    for (int s = 0; s < kDepth; ++s) spec.parameters.push_back({"w" + std::to_string(s), {16, 16}, true, ""});
    auto group = comm::make_single();
    EngineOptions options{.schedule = {.mode = mode}, .spill_dir = std::filesystem::temp_directory_path()};
    Engine engine(*group, spec, wide_chain(kDepth), options);
    for (const auto& parameter : spec.parameters) {
      engine.load(parameter.name, [](int64_t, int64_t, std::span<float> to) { std::fill(to.begin(), to.end(), 0.1f); });
    }
    model::Tensors input{{"h0", at::zeros({4096, 16})}};
    engine.round(input, "loss", {});
    tensor::mark_memory();
    uint64_t before = tensor::memory().allocated;
    engine.round(input, "loss", {});
    peak[mode] = tensor::memory().peak - before;
    EXPECT_EQ(engine.measured().disk, mode == Mode::kOffload ? (kDepth - 2) * kBoundary : 0u);
  }
  // Recompute holds all seven boundaries at the turn; offload the last segment's alone.
  EXPECT_LE(peak[Mode::kOffload] + 5 * kBoundary, peak[Mode::kRecompute]);
}

TEST(Poison, ChangesNothing) {
  toy::Course plain = toy::with({}), poisoned = toy::with({});
  poisoned.options.poison = true;
  EXPECT_TRUE(toy::same_bits(toy::train_threads(2, poisoned), toy::train_threads(2, plain)));
}

TEST(Poison, AReadOfAReleasedParameterShows) {
  comm::run_threads(2, [](comm::Group& group) {
    tensor::set_threads(1);
    auto segments = toy::segments();
    at::Tensor stolen;
    auto embed = segments[1].forward, block = segments[2].forward;
    segments[1].forward = [&, embed](const model::Tensors& p, const model::Tensors& b) {
      const at::Tensor& table = p.at("embed.weight");  // by its address: a handle would be found
      stolen = at::from_blob(table.data_ptr(), table.sizes(), table.options().requires_grad(false));
      return embed(p, b);
    };
    segments[2].forward = [&, block](const model::Tensors& p, const model::Tensors& b) {
      auto out = block(p, b);
      out["h.1"] = out["h.1"] + 0 * stolen.sum();  // the table's slot is larger than what overwrote it
      return out;
    };
    Engine engine(group, toy::spec(), segments, {.poison = true});
    toy::load(engine);
    EXPECT_TRUE(std::isnan(engine.round(toy::micro_batch(0), "loss", {"loss"}).at("loss").item<float>()));
  });
}

// What the second segment reads is changed by `spoil`, which may keep a tensor as long as the engine lives.
using Spoil = std::function<void(std::vector<model::Segment>& segments, at::Tensor& kept)>;

std::string refused(Mode mode, const Spoil& spoil) {
  std::string text;
  try {
    comm::run_threads(2, [&](comm::Group& group) {
      tensor::set_threads(1);
      at::Tensor kept;
      auto segments = toy::segments();
      spoil(segments, kept);
      Engine engine(group, toy::spec(), segments, {.schedule = {.mode = mode}});
      toy::load(engine);
      engine.round(toy::micro_batch(static_cast<size_t>(group.rank())), "loss", {"loss"});
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kSoftware);
    text = error.what();
  }
  return text;
}

TEST(Reads, OfAParameterThatASegmentDoesNotDeclareAreRefusedByName) {
  std::string text = refused(Mode::kKeep, [](std::vector<model::Segment>& segments, at::Tensor&) {
    segments[2].forward = [block = segments[2].forward](const model::Tensors& p, const model::Tensors& b) {
      auto out = block(p, b);
      out["h.1"] = out["h.1"] + p.at("embed.weight").sum();  // as a fused or tied head reads its embedding's
      return out;
    };
  });
  EXPECT_NE(text.find("\"embed.weight\" is read where it is not given"), std::string::npos) << text;
  EXPECT_NE(text.find(toy::segments()[2].name), std::string::npos) << text;
}

TEST(Reads, ThroughAHandleThatASegmentKeepsAreRefusedInEveryMode) {
  for (Mode mode : {Mode::kKeep, Mode::kRecompute, Mode::kOffload}) {
    std::string text = refused(mode, [](std::vector<model::Segment>& segments, at::Tensor& kept) {
      segments[1].forward = [embed = segments[1].forward, &kept](const model::Tensors& p, const model::Tensors& b) {
        if (!kept.defined()) kept = p.at("embed.weight").detach();
        return embed(p, b);
      };
    });
    EXPECT_NE(text.find("segment embed keeps 1 handles on its parameters (embed.weight)"), std::string::npos) << text;
  }
}

TEST(Order, OfCallsThatDiffersIsRefusedWithBothDescriptions) {
  std::string text;
  try {
    comm::run_threads(2, [](comm::Group& group) {
      tensor::set_threads(1);
      Engine engine(group, toy::spec(), toy::segments(), {});
      toy::load(engine);
      engine.gathered(group.rank() == 0 ? "block.0.weight" : "block.1.weight");
    });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("gather parameter block.0.weight"), std::string::npos) << text;
  EXPECT_NE(text.find("gather parameter block.1.weight"), std::string::npos) << text;
}

// Sums of n terms in two orders differ by at most 2 (n - 1) u times the sum of magnitudes, u = 2^-24, to first order
// (Higham, Accuracy and Stability, 4.2); n is the micro-batches of a window.
TEST(Local, SumsOfAWindowAreWithinTheBoundOfReordering) {
  constexpr int64_t kMicroBatches = 12;
  auto gradients = [&](bool local, int world, uint64_t first, int64_t count) {
    std::map<std::string, at::Tensor> found;
    comm::run_threads(world, [&](comm::Group& group) {
      tensor::set_threads(1);
      Engine engine(group, toy::spec(), toy::segments(), {.schedule = {.local = local}});
      toy::load(engine);
      toy::window(engine, count, first);
      for (const auto& parameter : toy::spec().parameters) {
        if (!parameter.trainable) continue;
        at::Tensor whole = engine.gathered_gradient(parameter.name).to(at::kDouble);
        if (group.rank() == 0) found[parameter.name] = whole;
      }
    });
    return found;
  };
  auto exact = gradients(false, 3, 0, kMicroBatches), local = gradients(true, 3, 0, kMicroBatches);
  std::map<std::string, at::Tensor> magnitude;
  for (uint64_t k = 0; k < kMicroBatches; ++k) {
    for (auto& [name, one] : gradients(false, 1, k, 1)) {
      magnitude[name] = magnitude.contains(name) ? magnitude[name] + one.abs() : one.abs();
    }
  }
  bool differs = false;
  for (const auto& [name, wanted] : exact) {
    if (name == "embed.weight") continue;  // its two uses are added apart, and their magnitudes were not
    at::Tensor bound = magnitude.at(name) * (2 * (kMicroBatches - 1) * std::ldexp(1.0, -24));
    EXPECT_TRUE((local.at(name) - wanted).abs().le(bound).all().item<bool>()) << name;
    differs |= !local.at(name).equal(wanted);
  }
  EXPECT_TRUE(differs) << "the order of sums was the same: the bound was not tried";
}

}  // namespace
}  // namespace sf::engine
