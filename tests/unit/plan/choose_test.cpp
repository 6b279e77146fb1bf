// SPDX-License-Identifier: Apache-2.0
#include "plan/choose.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace sf::plan {
namespace {

// Six segments of one parameter each. A kept graph takes 10 bytes, a boundary in memory 2, one in a file none.
arch::ModelSpec chain() {
  arch::ModelSpec spec;
  for (int i = 0; i < 6; ++i) {
    std::string name = fmt::format("s.{}", i);
    spec.parameters.push_back({name, {4, 4}, true, ""});
    spec.segments.push_back({name, {name}, {fmt::format("h.{}", i)}, {fmt::format("h.{}", i + 1)}, 0});
  }
  return spec;
}

uint64_t bytes(const Schedule& plan) {
  uint64_t sum = 0;
  for (size_t s = 0; s + 1 < plan.groups.size(); ++s)
    sum += plan.groups[s].mode == Mode::kKeep ? 10 : plan.groups[s].mode == Mode::kRecompute ? 2 : 0;
  return sum;
}

std::string modes(uint64_t limit) {
  arch::ModelSpec spec = chain();
  ScheduleOptions options;
  options.modes = choose_modes(spec, options, bytes, limit);
  std::string text;
  for (const Group& group : make_schedule(spec, spec.segments, options).groups) text += name_of(group.mode)[0];
  return text;
}

TEST(Choose, NothingIsGivenUpWhereEverythingFits) {
  EXPECT_EQ(modes(50), "kkkkkk");
}

TEST(Choose, AsFewSegmentsAsWillDoAreRecomputedFromTheFront) {
  EXPECT_EQ(modes(49), "rkkkkk");
  EXPECT_EQ(modes(30), "rrrkkk");
  EXPECT_EQ(modes(10), "rrrrrk");
}

TEST(Choose, WhereRecomputingIsNotEnoughAsFewAsWillDoAreOffloaded) {
  EXPECT_EQ(modes(9), "orrrrk");
  EXPECT_EQ(modes(4), "ooorrk");
}

TEST(Choose, WhatFitsNowhereGetsTheLeast) {
  arch::ModelSpec spec = chain();
  auto more = [](const Schedule& plan) { return bytes(plan) + 1; };
  EXPECT_EQ(choose_modes(spec, {}, more, 0).size(), 5U);
}

}  // namespace
}  // namespace sf::plan
