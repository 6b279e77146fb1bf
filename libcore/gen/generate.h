// SPDX-License-Identifier: Apache-2.0
// Plain decoding of many prompts: up to `batch` at once, a finished one's place is taken by the next.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/checkpoint.h"
#include "gen/sampler.h"
#include "gen/target.h"
#include "text/tokenizer.h"

namespace sf::gen {

struct Prompt {
  uint64_t sample = 0;         // names the prompt's random numbers; two equal prompts with different samples differ
  std::vector<int32_t> ids;    // at least one
  int64_t max_new_tokens = 0;  // 0: the options' value
};

enum class Finish { kStop, kStopText, kLength };  // a stop id came; a stop text; max_new_tokens reached
std::string_view name_of(Finish finish);          // "stop", "stop", "length"

struct Completion {
  size_t prompt = 0;         // index into the prompts given
  std::vector<int32_t> ids;  // new tokens, the stop id included
  Finish finish = Finish::kLength;
  double log_prob = 0;     // sum over ids under softmax of the raw logits; 0 unless asked for
  float least_margin = 0;  // greedy: smallest best-minus-second logit over the steps; +inf without a step
  // Of each token under softmax of the logits over the temperature (greedy: of the logits); empty unless asked for.
  std::vector<double> token_log_probs = {};
};

struct GenerateOptions {
  Sampling sampling;
  int64_t max_new_tokens = 256;  // counts the stop id
  std::vector<int32_t> stop_ids;
  // Texts that end an answer where its text first holds one, across borders of tokens; special tokens have no text.
  // The token that completes one is the last. `tokenizer` is needed with them, and must outlive the generation.
  std::vector<std::string> stop_texts;
  const text::Tokenizer* tokenizer = nullptr;
  int64_t batch = 32;  // sequences at once; results do not depend on it
  bool log_probs = false, token_log_probs = false;
  std::function<bool()> cancelled;  // asked once a step; true: unfinished prompts are given up

  void check() const;  // kConfig
};

struct GenerateStats {
  int64_t prompts = 0;          // finished
  int64_t prompt_tokens = 0;    // prefilled
  int64_t new_tokens = 0;       // of finished prompts, the prefill's token included
  int64_t target_forwards = 0;  // prefill cuts and decode steps of the whole batch
  double prefill_s = 0, decode_s = 0;
};

// The text of a completion: without its stop id, and cut before the first stop text.
std::string text_of(const Completion& completion, const GenerateOptions& options, const text::Tokenizer& tokenizer);

// Calls `done` as each prompt finishes, in an order that depends on the batch; the completions do not.
GenerateStats generate(Target& target, std::span<const Prompt> prompts, const GenerateOptions& options,
                       const std::function<void(const Completion&)>& done);

}  // namespace sf::gen
