// SPDX-License-Identifier: Apache-2.0
// A small model with every shape of trouble: a frozen prefix, a boundary read twice, odd sizes, a table used as
// embedding and, under an alias, as head. And the run that the tests compare: windows of micro-batches, whatever the
// world size.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "base/rng.h"
#include "engine/engine.h"
#include "tensor/convert.h"
#include "tensor/threads.h"

namespace sf::engine::toy {

constexpr int64_t kVocab = 37, kDim = 9, kLength = 5;

inline arch::ModelSpec spec() {
  arch::ModelSpec spec;
  spec.family = "toy";
  spec.parameters = {{"embed.weight", {kVocab, kDim}, true, ""}, {"position.weight", {kLength, kDim}, false, ""},
                     {"block.0.weight", {kDim, kDim}, true, ""}, {"block.0.gain", {kDim}, true, ""},
                     {"block.1.weight", {kDim, kDim}, true, ""}, {"block.1.gain", {kDim}, true, ""}};
  spec.aliases = {{"head.weight", "embed.weight"}};
  return spec;
}

inline at::Tensor block(const model::Tensors& p, const std::string& name, const at::Tensor& x) {
  return at::tanh(at::linear(x, p.at(name + ".weight"))) * p.at(name + ".gain");
}

inline std::vector<model::Segment> segments() {
  using model::Tensors;
  return {
      {"position",
       {"position.weight"},
       {"positions"},
       {"h.position"},
       [](const Tensors& p, const Tensors& b) {
         return Tensors{{"h.position", at::embedding(p.at("position.weight"), b.at("positions"))}};
       }},
      {"embed",
       {"embed.weight"},
       {"ids", "h.position"},
       {"h.0"},
       [](const Tensors& p, const Tensors& b) {
         return Tensors{{"h.0", at::embedding(p.at("embed.weight"), b.at("ids")) + b.at("h.position")}};
       }},
      {"block.0",
       {"block.0.weight", "block.0.gain"},
       {"h.0"},
       {"h.1"},
       [](const Tensors& p, const Tensors& b) {
         return Tensors{{"h.1", b.at("h.0") + block(p, "block.0", b.at("h.0"))}};
       }},
      {"block.1",
       {"block.1.weight", "block.1.gain"},
       {"h.0", "h.1"},
       {"h.2"},
       [](const Tensors& p, const Tensors& b) {
         return Tensors{{"h.2", b.at("h.1") + block(p, "block.1", b.at("h.1") - b.at("h.0"))}};
       }},
      {"head", {"head.weight"}, {"h.2", "targets"}, {"loss", "top"}, [](const Tensors& p, const Tensors& b) {
         at::Tensor logits = at::linear(b.at("h.2"), p.at("head.weight")).to(at::kFloat);
         return Tensors{{"loss", at::cross_entropy_loss(logits, b.at("targets"))}, {"top", logits.detach().argmax(-1)}};
       }}};
}

inline model::Tensors micro_batch(uint64_t number) {
  Rng rng(5, "toy batch");
  std::vector<int64_t> ids, targets, positions;
  for (uint64_t i = 0; i < kLength; ++i) {
    ids.push_back(static_cast<int64_t>(rng.below(kVocab, number, i)));
    targets.push_back(static_cast<int64_t>(rng.below(kVocab, number, 100 + i)));
    positions.push_back(static_cast<int64_t>(i));
  }
  return {{"ids", at::tensor(ids)}, {"targets", at::tensor(targets)}, {"positions", at::tensor(positions)}};
}

inline void load(Engine& engine) {
  for (const arch::Parameter& parameter : spec().parameters) {
    Rng rng(3, parameter.name);
    engine.load(parameter.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
      for (int64_t i = lo; i < hi; ++i) to[static_cast<size_t>(i - lo)] = rng.normal(static_cast<uint64_t>(i)) * 0.5f;
    });
  }
}

// Of any model: matrices small and random, norms and biases near one.
inline void load(Engine& engine, const arch::ModelSpec& spec) {
  for (const arch::Parameter& parameter : spec.parameters) {
    engine.load(parameter.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
      Rng rng(23, parameter.name);
      float base = parameter.shape.size() == 1 ? 1.0f : 0.0f;
      for (int64_t i = lo; i < hi; ++i)
        to[static_cast<size_t>(i - lo)] = base + 0.2f * rng.normal(static_cast<uint64_t>(i));
    });
  }
}

// Everything two runs must agree on: losses in global order, gradient norms, weights.
inline void append(std::vector<float>& to, const at::Tensor& tensor) {
  at::Tensor flat = tensor.to(at::kFloat).contiguous();
  to.insert(to.end(), flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel());
}

struct Course {
  EngineOptions options;
  int64_t micro_batches = 12, windows = 3;
  bool bf16 = false;  // masters and moments
};

// A course whose schedule is all that differs.
inline Course with(plan::ScheduleOptions schedule, int64_t micro_batches = 12, int64_t windows = 3) {
  return {{.schedule = std::move(schedule)}, micro_batches, windows};
}

// One window; returns the losses of all micro-batches in global order (on every rank).
inline std::vector<float> window(Engine& engine, int64_t micro_batches, uint64_t first) {
  comm::Group& group = engine.group();
  std::vector<float> losses;
  for (int64_t round = 0; round < plan::rounds(micro_batches, group.world()); ++round) {
    int64_t mine = round * group.world() + group.rank();
    std::optional<model::Tensors> batch;
    if (mine < micro_batches) batch = micro_batch(first + static_cast<uint64_t>(mine));
    model::Tensors out = engine.round(batch, "loss", {"loss", "top"});
    auto world = static_cast<size_t>(group.world());
    std::vector<float> all(world), one{batch ? out.at("loss").item<float>() : 0.0f};
    std::vector<size_t> sizes(world, sizeof(float));
    group.all_gather(std::as_bytes(std::span(one)), sizes, std::as_writable_bytes(std::span(all)),
                     {"losses", Deadline::after_ms(20'000)});
    losses.insert(losses.end(), all.begin(), all.end());
  }
  losses.resize(static_cast<size_t>(micro_batches));
  return losses;
}

inline std::vector<float> train(Engine& engine, const Course& run, int64_t from_window = 0) {
  std::vector<float> record;
  for (int64_t w = from_window; w < run.windows; ++w) {
    auto losses = window(engine, run.micro_batches, static_cast<uint64_t>(w * run.micro_batches));
    record.insert(record.end(), losses.begin(), losses.end());
    StepResult step = engine.step(1e-2, 0.5, {.weight_decay = 0.01, .bf16 = run.bf16});
    record.push_back(static_cast<float>(step.grad_norm));
    if (run.bf16) record.push_back(static_cast<float>(step.kept));
  }
  for (const arch::Parameter& parameter : spec().parameters) append(record, engine.gathered(parameter.name));
  return record;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The whole run on one rank of a group.
inline std::vector<float> train(comm::Group& group, const Course& run) {
  tensor::set_threads(1);
  Engine engine(group, spec(), segments(), run.options);
  load(engine);
  return train(engine, run);
}

// On `world` threads; every rank has the same record.
inline std::vector<float> train_threads(int world, const Course& run) {
  std::vector<std::vector<float>> records(static_cast<size_t>(world));
  comm::run_threads(world, [&](comm::Group& group) { records[static_cast<size_t>(group.rank())] = train(group, run); });
  for (const auto& record : records) EXPECT_TRUE(same_bits(record, records[0]));
  return records[0];
}

inline std::vector<float> train_alone(const Course& run) {
  return train(*comm::make_single(), run);
}

}  // namespace sf::engine::toy
