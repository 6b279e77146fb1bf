// SPDX-License-Identifier: Apache-2.0
// What tests of whole chains against the allocator have in common.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/rng.h"
#include "plan/work.h"
#include "tensor/memory.h"
#include "toy.h"

namespace sf::engine {

struct Measured {
  uint64_t predicted = 0, measured = 0;
};

inline void expect_close(const Measured& work) {
  double excess = static_cast<double>(work.predicted) / static_cast<double>(work.measured) - 1;
  EXPECT_GE(work.predicted, work.measured) << 100 * excess << " %";
  EXPECT_LE(excess, 0.03) << work.predicted << " bytes predicted, " << work.measured << " measured";
}

// The most that one round of a loaded engine holds in tensors besides the engine and the micro-batch. `spread`: how far
// parameters differ from 0.01.
inline uint64_t measure(Engine& engine, const arch::ModelSpec& spec, const model::Tensors& batch,
                        const std::string& sums, float spread = 0) {
  for (const arch::Parameter& parameter : spec.parameters)
    engine.load(parameter.name, [&](int64_t lo, int64_t, std::span<float> to) {
      Rng rng(1, parameter.name);
      for (float& value : to) value = 0.01f + spread * rng.normal(static_cast<uint64_t>(lo++));
    });
  tensor::mark_memory();
  uint64_t before = tensor::memory().allocated;
  engine.round(batch, "loss", {sums});
  return tensor::memory().peak - before;
}

inline EngineOptions options_of(Dtype compute, Mode mode) {
  return {.schedule = {.compute = compute, .mode = mode}, .spill_dir = std::filesystem::temp_directory_path()};
}

}  // namespace sf::engine
