// SPDX-License-Identifier: Apache-2.0
#include "train/grpo.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "plan/interval.h"
#include "rl/balance.h"
#include "train/grpo_batch.h"

namespace sf::train {
namespace {

std::vector<double> spread(const rl::Ragged& rows, std::span<const double> by_sequence) {
  std::vector<double> tokens;
  for (int64_t s = 0; s < rows.count(); ++s)
    tokens.insert(tokens.end(), static_cast<size_t>(rows.length(s)), by_sequence[static_cast<size_t>(s)]);
  return tokens;
}

std::vector<double> column(std::span<const Response> responses, auto&& of) {
  std::vector<double> result;
  for (const Response& response : responses) result.push_back(static_cast<double>(of(response)));
  return result;
}

std::vector<std::string> groups_of(std::span<const Response> responses) {
  std::vector<std::string> groups;
  for (const Response& response : responses) groups.push_back(response.group);
  return groups;
}

void add_data(std::span<const Response> responses, const rl::Advantages& advantages, double longest, rl::Metrics& to) {
  using enum rl::Reduction;
  const std::vector<double> scores = column(responses, [](const Response& r) { return r.score; });
  rl::add_spread(to, "critic/score", scores);
  rl::add_spread(to, "critic/rewards", scores);
  rl::add_spread(to, "critic/advantages", advantages.of);
  rl::add_spread(to, "critic/returns", advantages.of);
  rl::add_lengths(to, "response_length", column(responses, [](const Response& r) { return r.answer.size(); }), longest);
  rl::add_spread(to, "prompt_length", column(responses, [](const Response& r) { return r.prompt.size(); }));
  to.push_back({"grpo/groups", static_cast<double>(advantages.groups), kSum});
  to.push_back({"grpo/zero_variance_groups", static_cast<double>(advantages.zero_variance), kSum});
  to.push_back({"grpo/singleton_groups", static_cast<double>(advantages.singletons), kSum});
}

void add_mismatch(const rl::Gap& gap, rl::Metrics& to) {
  const rl::Metrics apart = rl::mismatch(gap);
  to.insert(to.end(), apart.begin(), apart.end());
}

}  // namespace

// Of all responses, one behind the other.
struct GrpoTrainer::Tokens {
  rl::Ragged rows;
  std::vector<uint8_t> mask;
  std::vector<double> old, rollout, advantages, weights, reference;  // the last two: or none
};

GrpoTrainer::GrpoTrainer(engine::Engine& engine, GrpoOptions options) : engine_(engine), options_(std::move(options)) {
  SF_ASSERT(options_.old == OldLogProbs::kRecompute || !options_.correction);
  SF_ASSERT(options_.old != OldLogProbs::kUpdate || (options_.mini_batch == 0 && options_.rejection.empty()));
}

GrpoTrainer::Tokens GrpoTrainer::tokens_of(std::span<const Response> responses) {
  SF_ASSERT(!responses.empty());
  Tokens tokens;
  for (const Response& response : responses) {
    SF_ASSERT(!response.prompt.empty() && !response.answer.empty());
    SF_ASSERT(response.rollout_log_probs.size() == response.answer.size());
    tokens.rows.add(std::ssize(response.answer));
    tokens.rollout.insert(tokens.rollout.end(), response.rollout_log_probs.begin(), response.rollout_log_probs.end());
  }
  tokens.mask.assign(tokens.rollout.size(), 1);
  if (options_.old == OldLogProbs::kRecompute) tokens.old = log_probs(responses, true);
  if (options_.old == OldLogProbs::kRollout) tokens.old = tokens.rollout;
  if (options_.kl_coefficient) tokens.reference = log_probs(responses, false);
  return tokens;
}

// Advantages, and what follows from where sampler and learner do not agree.
void GrpoTrainer::judge(std::span<const Response> responses, Tokens& tokens, rl::Metrics& metrics) const {
  const std::vector<std::string> groups = groups_of(responses);
  const std::vector<double> scores = column(responses, [](const Response& r) { return r.score; });
  std::vector<int64_t> lengths;
  for (const Response& response : responses) lengths.push_back(std::ssize(response.answer));
  const rl::Advantages advantages = rl::advantages(groups, scores, options_.advantage, lengths);
  tokens.advantages = spread(tokens.rows, advantages.of);
  add_data(responses, advantages, static_cast<double>(options_.longest_answer), metrics);
  const rl::Gap gap{tokens.rows, tokens.mask, tokens.old, tokens.rollout};
  if (options_.old != OldLogProbs::kUpdate) add_mismatch(gap, metrics);
  if (options_.correction) tokens.weights = rl::correction_weights(gap, *options_.correction, &metrics);
  if (!options_.rejection.empty()) tokens.mask = rl::surviving(gap, options_.rejection, &metrics);
  for (int64_t s = 0; s < tokens.rows.count(); ++s)
    if (!advantages.kept[static_cast<size_t>(s)])
      std::ranges::fill(tokens.rows.of(std::span(tokens.mask), s), uint8_t{0});
}

GrpoResult GrpoTrainer::step(std::span<const Response> responses, double lr) {
  GrpoResult result;
  options_.phase("log_probs");
  Tokens tokens = tokens_of(responses);
  judge(responses, tokens, result.metrics);
  options_.phase("update");
  learn(responses, tokens, lr, result);
  if (options_.old == OldLogProbs::kUpdate && !tokens.old.empty())
    add_mismatch({tokens.rows, tokens.mask, tokens.old, tokens.rollout}, result.metrics);
  result.metrics = rl::reduced(result.metrics);
  return result;
}

std::vector<double> GrpoTrainer::gathered(const std::vector<double>& mine, const std::vector<size_t>& sizes,
                                          const char* what) {
  std::vector<size_t> bytes;
  for (size_t size : sizes) bytes.push_back(size * sizeof(double));
  std::vector<double> all(std::accumulate(sizes.begin(), sizes.end(), size_t{0}));
  engine_.group().all_gather(std::as_bytes(std::span(mine)), bytes, std::as_writable_bytes(std::span(all)),
                             {what, Deadline::after(Seconds(options_.call_deadline_s))});
  return all;
}

// One unpadded sequence a forward: a response's bits do not depend on who computes it, nor beside what.
std::vector<double> GrpoTrainer::log_probs(std::span<const Response> responses, bool adapted) {
  const auto world = static_cast<size_t>(engine_.group().world()), rank = static_cast<size_t>(engine_.group().rank());
  std::vector<double> mine;
  std::vector<size_t> sizes(world, 0);
  for (size_t k = 0; k < responses.size(); ++k) sizes[k % world] += responses[k].answer.size();
  for (size_t first = 0; first < responses.size(); first += world) {
    std::optional<model::Tensors> inputs;
    if (first + rank < responses.size()) inputs = scoring_batch(responses[first + rank], adapted);
    const model::Tensors kept = engine_.forward(inputs, {"log_probs"});
    if (!inputs) continue;
    const at::Tensor found = kept.at("log_probs").to(at::kDouble).contiguous();
    mine.insert(mine.end(), found.const_data_ptr<double>(), found.const_data_ptr<double>() + found.numel());
  }
  const std::vector<double> by_rank =
      gathered(mine, sizes, adapted ? "old log-probabilities" : "log-probabilities of the reference");
  std::vector<size_t> next(world, 0);
  std::exclusive_scan(sizes.begin(), sizes.end(), next.begin(), size_t{0});
  std::vector<double> result;
  for (size_t k = 0; k < responses.size(); ++k) {
    auto from = by_rank.begin() + static_cast<std::ptrdiff_t>(next[k % world]);
    result.insert(result.end(), from, from + std::ssize(responses[k].answer));
    next[k % world] += responses[k].answer.size();
  }
  return result;
}

// Micro-batches of responses [begin, end) of the step, and what their tokens weigh.
struct GrpoTrainer::MiniBatch {
  std::vector<rl::Part> parts;  // indices among all responses
  std::vector<double> shares;   // by token of all responses; empty: there is nothing to learn from
};

GrpoTrainer::MiniBatch GrpoTrainer::mini_batch(std::span<const Response> responses, const Tokens& tokens, int64_t begin,
                                               int64_t end) const {
  MiniBatch batch;
  std::vector<int64_t> lengths;
  std::vector<uint8_t> mask(tokens.mask.size(), 0);
  for (int64_t s = begin; s < end; ++s) {
    const Response& response = responses[static_cast<size_t>(s)];
    lengths.push_back(std::ssize(response.prompt) + std::ssize(response.answer));
    std::ranges::copy(tokens.rows.of(rl::Mask(tokens.mask), s), tokens.rows.of(std::span(mask), s).begin());
  }
  const auto there = static_cast<double>(std::ranges::count(mask, 1));
  if (there == 0) return batch;
  batch.shares =
      rl::token_shares(tokens.rows, mask, options_.aggregation,
                       {.tokens = there, .sequences = static_cast<double>(end - begin), .factor = options_.factor});
  batch.parts = rl::micro_batches(lengths, {.tokens = options_.token_budget, .padded = true});
  for (rl::Part& part : batch.parts)
    for (int64_t& index : part) index += begin;
  return batch;
}

// Forward and backward of all micro-batches, k on rank k mod W in round k div W; their sums, added in that order.
auto GrpoTrainer::rounds(std::span<const Response> responses, Tokens& tokens, const MiniBatch& batch)
    -> std::array<double, kSums> {
  const int world = engine_.group().world(), rank = engine_.group().rank();
  const int64_t micro_batches = std::ssize(batch.parts), rounds = plan::rounds(micro_batches, world);
  std::vector<double> mine(static_cast<size_t>(rounds) * kSums, 0), log_probs;
  for (int64_t round = 0; round < rounds; ++round) {
    std::optional<model::Tensors> inputs;
    const int64_t k = round * world + rank;
    if (k < micro_batches)
      inputs =
          learning_batch(responses, batch.parts[static_cast<size_t>(k)],
                         {tokens.rows, tokens.old, tokens.advantages, batch.shares, tokens.weights, tokens.reference});
    const model::Tensors kept = engine_.round(inputs, "loss", {"sums", "log_probs"});
    if (!inputs) continue;
    std::copy_n(kept.at("sums").const_data_ptr<double>(), kSums, mine.begin() + round * static_cast<int64_t>(kSums));
    const at::Tensor found = kept.at("log_probs").to(at::kDouble).contiguous();
    log_probs.insert(log_probs.end(), found.const_data_ptr<double>(), found.const_data_ptr<double>() + found.numel());
  }
  if (options_.old == OldLogProbs::kUpdate) tokens.old = by_response(tokens.rows, batch, log_probs);
  const std::vector<double> all =
      gathered(mine, std::vector<size_t>(static_cast<size_t>(world), mine.size()), "sums of a mini-batch");
  std::array<double, kSums> sums{};
  for (int64_t k = 0; k < micro_batches; ++k) {
    const plan::Turn turn = plan::turn_of(k, world);
    const size_t from = static_cast<size_t>(turn.rank) * mine.size() + static_cast<size_t>(turn.round) * kSums;
    for (size_t i = 0; i < kSums; ++i) sums[i] += all[from + i];
  }
  return sums;
}

// What each rank's micro-batches told, in the order of the responses.
std::vector<double> GrpoTrainer::by_response(const rl::Ragged& rows, const MiniBatch& batch,
                                             const std::vector<double>& mine) {
  const auto world = static_cast<size_t>(engine_.group().world());
  std::vector<size_t> sizes(world, 0), next(world, 0);
  for (size_t k = 0; k < batch.parts.size(); ++k)
    for (int64_t s : batch.parts[k]) sizes[k % world] += static_cast<size_t>(rows.length(s));
  const std::vector<double> all = gathered(mine, sizes, "log-probabilities of the update");
  std::exclusive_scan(sizes.begin(), sizes.end(), next.begin(), size_t{0});
  std::vector<double> result(all.size());
  for (size_t k = 0; k < batch.parts.size(); ++k)
    for (int64_t s : batch.parts[k]) {
      const auto length = static_cast<size_t>(rows.length(s));
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(next[k % world]), length,
                  rows.of(std::span(result), s).begin());
      next[k % world] += length;
    }
  return result;
}

void GrpoTrainer::learn(std::span<const Response> responses, Tokens& tokens, double lr, GrpoResult& result) {
  using enum rl::Reduction;
  const int64_t count = std::ssize(responses), size = options_.mini_batch > 0 ? options_.mini_batch : count;
  for (int64_t begin = 0; begin < count; begin += size) {
    const MiniBatch batch = mini_batch(responses, tokens, begin, std::min(begin + size, count));
    if (batch.shares.empty()) {
      ++result.empty;
      continue;
    }
    const std::array<double, kSums> sums = rounds(responses, tokens, batch);
    const engine::StepResult step = engine_.step(lr, options_.max_norm, options_.adamw);
    result.updates += !step.skipped;
    result.skipped += step.skipped;
    if (step.skipped) result.culprit = step.culprit;
    result.metrics.push_back({"actor/pg_loss", sums[0], kMean});
    result.metrics.push_back({"actor/pg_clipfrac", sums[2] / sums[1], kMean});
    result.metrics.push_back({"actor/pg_clipfrac_lower", sums[3] / sums[1], kMean});
    result.metrics.push_back({"actor/ppo_kl", sums[4] / sums[1], kMean});
    result.metrics.push_back({"actor/entropy", sums[5] / sums[1], kMean});
    if (options_.kl_coefficient) {
      result.metrics.push_back({"actor/kl_loss", sums[6], kMean});
      result.metrics.push_back({"actor/kl_coef", *options_.kl_coefficient, kMean});
    }
    result.metrics.push_back({"actor/grad_norm", step.grad_norm, kMean});
    result.metrics.push_back({"grpo/micro_batches", static_cast<double>(batch.parts.size()), kSum});
  }
}

}  // namespace sf::train
