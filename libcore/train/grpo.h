// SPDX-License-Identifier: Apache-2.0
// One step of GRPO behind the rollout: old log-probabilities, advantages, mini-batches in micro-batches, optimizer.
// Source: rl_lora 4.1-4.8. Every rank holds all responses and computes a part; the results are those of any number of
// ranks, bit for bit, where the engine's are.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "rl/advantage.h"
#include "rl/aggregate.h"
#include "rl/metrics.h"
#include "rl/rejection.h"

namespace sf::train {

// Token ids in, token ids out: no text comes back to ids.
struct Response {
  std::string group;                      // names its prompt, and no other prompt of this step
  std::vector<int32_t> prompt, answer;    // at least one token each; the answer ends with its stop id, if it has one
  std::vector<double> rollout_log_probs;  // of the answer's tokens, by the sampler, under the temperature
  double score = 0;
};

// Whose log-probabilities the ratio is over: a pass of the trainer's own before the update, one unpadded sequence a
// forward; the update's, whose ratio then is 1 (one mini-batch a step); or the sampler's.
enum class OldLogProbs { kRecompute, kUpdate, kRollout };

struct GrpoOptions {
  rl::AdvantageOptions advantage;
  rl::Aggregation aggregation = rl::Aggregation::kTokenMean;
  double factor = 1;  // of seq-mean-token-sum-norm
  OldLogProbs old = OldLogProbs::kRecompute;
  std::optional<rl::CorrectionOptions> correction;  // only with kRecompute
  std::vector<rl::Criterion> rejection;
  int64_t mini_batch = 0;      // responses of one optimizer step; 0: all
  int64_t token_budget = 0;    // of a micro-batch, padding included
  int64_t longest_answer = 0;  // tokens that a response may have: one of so many was cut
  // Of model::PolicyForm::kl, if there is one: then the log-probabilities with the adapters off are computed too.
  std::optional<double> kl_coefficient;
  double max_norm = 1;
  engine::AdamW adamw;
  double call_deadline_s = 120;
  std::function<void(const std::string& name)> phase = [](const std::string&) {};  // told what begins
};

struct GrpoResult {
  rl::Metrics metrics;               // under the reference's names; equal on all ranks
  int64_t updates = 0, skipped = 0;  // optimizer steps that changed weights; that had a non-finite gradient
  int64_t empty = 0;                 // mini-batches without a token to learn from
  std::string culprit;               // of the last one skipped
};

class GrpoTrainer {
 public:
  // Borrows the engine, whose last segment is that of model::grpo_segments.
  GrpoTrainer(engine::Engine& engine, GrpoOptions options);

  // Every rank calls it with the same responses. kConfig if one does not fit the budget of tokens.
  GrpoResult step(std::span<const Response> responses, double lr);

 private:
  static constexpr size_t kSums = 7;  // of model::grpo_segments
  struct Tokens;
  struct MiniBatch;
  Tokens tokens_of(std::span<const Response> responses);
  void judge(std::span<const Response> responses, Tokens& tokens, rl::Metrics& metrics) const;
  MiniBatch mini_batch(std::span<const Response> responses, const Tokens& tokens, int64_t begin, int64_t end) const;
  std::array<double, kSums> rounds(std::span<const Response> responses, Tokens& tokens, const MiniBatch& batch);
  std::vector<double> by_response(const rl::Ragged& rows, const MiniBatch& batch, const std::vector<double>& mine);
  // Of every answer's tokens, under the adapters or with them off.
  std::vector<double> log_probs(std::span<const Response> responses, bool adapted);
  void learn(std::span<const Response> responses, Tokens& tokens, double lr, GrpoResult& result);
  // Over all ranks: rank r gives sizes[r] numbers; all of them by rank.
  std::vector<double> gathered(const std::vector<double>& mine, const std::vector<size_t>& sizes, const char* what);
  engine::Engine& engine_;
  GrpoOptions options_;
};

}  // namespace sf::train
