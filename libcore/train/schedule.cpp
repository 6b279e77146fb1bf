// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace sf::train {
namespace {

int64_t warmup_of(const Schedule& schedule) {
  return static_cast<int64_t>(schedule.warmup_ratio * static_cast<double>(schedule.total));
}

double cosine(const Schedule& schedule, int64_t since, int64_t span) {
  double angle = std::numbers::pi / static_cast<double>(span);
  double shape = 1 + std::cos(angle * static_cast<double>(since));
  if (!schedule.reference_quirks) return since >= span ? 0 : schedule.base / 2 * shape;
  // The reference's recursion starts from the second rate; past the end it restarts from 0 with the textbook's scale.
  return std::max(0.0, schedule.base * shape / (since <= span ? 1 + std::cos(angle) : 2));
}

}  // namespace

void check(const Schedule& schedule) {
  SF_CHECK(std::isfinite(schedule.base) && schedule.base >= 0, Exit::kConfig,
           "the learning rate is {}, wanted a finite number >= 0", schedule.base);
  SF_CHECK(schedule.warmup_ratio >= 0 && schedule.warmup_ratio <= 1, Exit::kConfig,
           "the warm-up ratio is {}, wanted 0 to 1", schedule.warmup_ratio);
  SF_CHECK(schedule.total > 0, Exit::kConfig, "the schedule spans {} updates, wanted at least 1", schedule.total);
  SF_CHECK(schedule.decay != Decay::kConstant || warmup_of(schedule) < schedule.total, Exit::kConfig,
           "a constant rate has {} warm-up updates of {}: nothing is left to train at the full rate",
           warmup_of(schedule), schedule.total);
}

double rate(const Schedule& schedule, int64_t update) {
  int64_t warmup = warmup_of(schedule);
  if (update < warmup) return schedule.base * static_cast<double>(update + 1) / static_cast<double>(warmup);
  if (schedule.decay == Decay::kConstant) return schedule.base;
  return cosine(schedule, update - warmup, schedule.total - warmup);
}

Decay decay_from_name(std::string_view name) {
  if (name == "cosine") return Decay::kCosine;
  if (name == "constant") return Decay::kConstant;
  fail(Exit::kConfig, "unknown learning-rate schedule \"{}\": wanted cosine or constant", name);
}

}  // namespace sf::train
