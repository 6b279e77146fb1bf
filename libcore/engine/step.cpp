// SPDX-License-Identifier: Apache-2.0
// The end of a window: one gradient a parameter, its exact norm, AdamW or a skip that all ranks agree on.
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/fault.h"
#include "engine/state.h"
#include "ops/optimizer_kernels.h"

namespace sf::engine {
namespace {

// A sum that overflowed although every gradient was finite: after all micro-batches, of no rank.
constexpr int64_t kTheSum = INT64_MAX - 1;

size_t uses_counted(const plan::Held& held) {
  return fault("engine.drop_alias") ? 1 : held.groups.size();
}

}  // namespace

StepResult Engine::State::step(double lr, double max_norm, const AdamW& adamw) {
  SF_CHECK(round_ > 0, Exit::kSoftware, "a step without a round");
  double start = monotonic_s(), waited = times.communication;
  fold_local_sums();
  add_accumulators();
  ops::SquareSum squares;
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    if (!plan.parameters[p].trainable) continue;
    std::span<const float> gradient = store.accumulator(plan.parameters[p].groups.front(), p);
    const uint64_t before = squares.bad();
    squares.add(gradient);
    if (squares.bad() != before) culprit_ = std::min(culprit_, Culprit{kTheSum, static_cast<int64_t>(p), -1});
  }
  Culprit worst = worst_of_all_ranks();
  auto limbs = squares.limbs();
  std::vector<int64_t> sums(limbs.begin(), limbs.end());
  sums.insert(sums.end(), uses_.begin(), uses_.end());
  timed_call([&] { group.all_reduce_sum(sums, call("sum of squares")); });
  std::copy_n(sums.begin(), limbs.size(), limbs.begin());
  squares.set_limbs(limbs);
  StepResult result;
  result.unused = fresh_unused(std::span(sums).subspan(limbs.size()));
  result.skipped = worst.micro_batch != INT64_MAX && !fault("engine.take_non_finite");
  if (result.skipped) {
    result.culprit = describe(worst);
    result.grad_norm = NAN;
  } else {
    result.grad_norm = std::sqrt(squares.to_double());
    double scale = max_norm > 0 ? std::min(1.0, max_norm / (result.grad_norm + 1e-6)) : 1.0;
    result.kept = update(lr, scale, adamw);
  }
  store.zero_accumulators();
  end_window();
  std::fill(uses_.begin(), uses_.end(), 0);
  culprit_ = {};
  round_ = 0;
  times.optimizer += monotonic_s() - start - (times.communication - waited);
  return result;
}

void Engine::State::fold_local_sums() {
  for (size_t g = 0; g < plan.groups.size() && plan.options.local; ++g) {
    if (plan.groups[g].fold_offsets.empty()) continue;
    std::string tag = "fold " + plan.groups[g].name;
    std::span<const float> sum = store.sum(g);
    timed_call([&] {
      group.reduce_fold(has_sums_ ? sum : sum.first(0), has_sums_, plan.groups[g].fold_offsets, store.accumulators(g),
                        call(tag));
    });
  }
  if (has_sums_) store.zero_sums();
  has_sums_ = false;
}

// Segment by segment in forward order, into the first segment's accumulator.
void Engine::State::add_accumulators() {
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    const plan::Held& held = plan.parameters[p];
    if (!held.trainable) continue;
    for (size_t use = 1; use < uses_counted(held); ++use) {
      ops::fold_add(store.accumulator(held.groups[0], p), store.accumulator(held.groups[use], p));
    }
  }
}

std::vector<float> Engine::State::window_gradient(size_t parameter) const {
  std::vector<float> sum(static_cast<size_t>(store.owned(parameter).size()), 0.0f);
  const plan::Held& held = plan.parameters[parameter];
  for (size_t use = 0; use < uses_counted(held); ++use) {
    std::span<const float> part = store.accumulator(held.groups[use], parameter);
    if (use == 0) {
      sum.assign(part.begin(), part.end());
    } else {
      ops::fold_add(sum, part);
    }
  }
  return sum;
}

Engine::State::Culprit Engine::State::worst_of_all_ranks() {
  auto world = static_cast<size_t>(group.world());
  std::vector<Culprit> all(world);
  std::vector<size_t> sizes(world, sizeof(Culprit));
  timed_call([&] {
    group.all_gather(std::as_bytes(std::span(&culprit_, 1)), sizes, std::as_writable_bytes(std::span(all)),
                     call("compare gradients"));
  });
  return *std::min_element(all.begin(), all.end());
}

std::string Engine::State::describe(const Culprit& culprit) const {
  const std::string& name = plan.parameters[static_cast<size_t>(culprit.parameter)].name;
  if (culprit.micro_batch == kTheSum) return fmt::format("parameter {}, the sum of all micro-batches", name);
  return fmt::format("parameter {}, rank {}, micro-batch {}", name, culprit.rank, culprit.micro_batch);
}

std::vector<std::string> Engine::State::fresh_unused(std::span<const int64_t> uses) {
  std::vector<std::string> fresh;
  for (size_t p = 0; p < uses.size(); ++p) {
    if (!plan.parameters[p].trainable || uses[p] != 0) continue;
    if (named_unused_.insert(plan.parameters[p].name).second) fresh.push_back(plan.parameters[p].name);
  }
  return fresh;
}

double Engine::State::update(double lr, double scale, const AdamW& adamw) {
  ++steps_done;
  if (!fault("engine.stale_slot")) slots.masters_changed();
  ops::AdamWStep step{lr, adamw.beta1, adamw.beta2, adamw.eps, adamw.weight_decay, steps_done, scale};
  std::array<int64_t, 2> kept{};  // and of how many; counted for bf16 alone
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    if (!plan.parameters[p].trainable) continue;
    std::span<const float> gradient = store.accumulator(plan.parameters[p].groups.front(), p);
    std::span<float> master = store.owned_master(p);
    if (adamw.bf16 && !fault("engine.wide_masters"))
      kept[0] += ops::adamw_step_bf16(master, gradient, store.exp_avg(p), store.exp_avg_sq(p), step);
    else
      ops::adamw_step(master, gradient, store.exp_avg(p), store.exp_avg_sq(p), step);
    kept[1] += std::ssize(master);
  }
  if (adamw.bf16) timed_call([&] { group.all_reduce_sum(kept, call("masters that kept their value")); });
  if (plan.mesh.replicas > 1 && !fault("engine.no_spread"))
    timed_call([&] { store.spread(column(), call("spread masters")); });
  return static_cast<double>(kept[0]) / static_cast<double>(std::max<int64_t>(kept[1], 1));
}

}  // namespace sf::engine
