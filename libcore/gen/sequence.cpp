// SPDX-License-Identifier: Apache-2.0
#include "gen/sequence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/fault.h"
#include "ops/parallel.h"

namespace sf::gen {
namespace {

constexpr int64_t kCacheGrain = 256;  // capacities are rounded up, so that caches are reused

}  // namespace

Sequence::Sequence(const Prompt& prompt, size_t index, const GenerateOptions& options)
    : least_margin(std::numeric_limits<float>::infinity()),
      sample_(prompt.sample),
      index_(index),
      prompt_tokens_(prompt.ids.size()),
      max_new_tokens_(prompt.max_new_tokens > 0 ? prompt.max_new_tokens : options.max_new_tokens),
      options_(options),
      ids_(prompt.ids) {
  SF_CHECK(!prompt.ids.empty(), Exit::kData, "prompt {} holds no token", index);
}

bool Sequence::commit(int32_t id) {
  SF_ASSERT(!finished_);
  ids_.push_back(id);
  if (std::ranges::find(options_.stop_ids, id) != options_.stop_ids.end()) {
    finished_ = true;
    finish_ = Finish::kStop;
  } else if (ends_in_stop_text(id)) {
    finished_ = true;
    finish_ = Finish::kStopText;
  } else if (static_cast<int64_t>(answered()) >= max_new_tokens_) {
    finished_ = true;
  }
  return !finished_;
}

bool Sequence::ends_in_stop_text(int32_t id) {
  if (options_.stop_texts.empty() || !options_.tokenizer->has(id) || options_.tokenizer->is_special(id)) return false;
  tail_ += options_.tokenizer->bytes_of(id);
  size_t longest = 0;
  for (const std::string& text : options_.stop_texts) {
    if (tail_.find(text) != std::string::npos) return true;
    longest = std::max(longest, text.size());
  }
  if (fault("gen.forget_tail")) tail_.clear();
  if (tail_.size() >= longest) tail_.erase(0, tail_.size() - longest + 1);
  return false;
}

int64_t Sequence::capacity(int64_t look_ahead) const {
  const int64_t need = static_cast<int64_t>(prompt_tokens_) + max_new_tokens_ + look_ahead;
  return (need + kCacheGrain - 1) / kCacheGrain * kCacheGrain;
}

Completion Sequence::completion() const {
  return {index_,       {ids_.begin() + static_cast<std::ptrdiff_t>(prompt_tokens_), ids_.end()},
          finish_,      log_prob,
          least_margin, token_log_probs};
}

double log_prob_of(std::span<const float> scores, int32_t id, double temperature) {
  const double best = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (float s : scores) sum += std::exp((double{s} - best) / temperature);
  return (double{scores[static_cast<size_t>(id)]} - best) / temperature - std::log(sum);
}

float margin_of(std::span<const float> scores) {
  float best = -std::numeric_limits<float>::infinity(), second = best;
  for (float s : scores) {
    if (s > best)
      second = best, best = s;
    else if (s > second)
      second = s;
  }
  return best - second;
}

Chooser::Chooser(const Target& target, const GenerateOptions& options)
    : target_(target),
      options_(options),
      draws_(options.sampling.seed),
      needs_scores_(!options.sampling.greedy() || options.sampling.needs_history() || options.log_probs ||
                    options.token_log_probs) {}

std::vector<int32_t> Chooser::choose(const at::Tensor& final_norm, std::span<Sequence* const> sequences) const {
  std::vector<int32_t> chosen;
  if (!needs_scores_) {
    ops::Top1 top = target_.top1(final_norm);
    for (size_t i = 0; i < sequences.size(); ++i) {
      chosen.push_back(top.top1.data_ptr<int32_t>()[i]);
      sequences[i]->least_margin = std::min(sequences[i]->least_margin, top.margin.data_ptr<float>()[i]);
    }
    return chosen;
  }
  at::Tensor logits = target_.logits(final_norm);
  const auto vocab = static_cast<size_t>(logits.size(1));
  chosen.resize(sequences.size());
  ops::parallel()(sequences.size(), [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      Sequence& sequence = *sequences[i];
      std::span<const float> scores(logits.const_data_ptr<float>() + i * vocab, vocab);
      const Law law = law_of(scores, options_.sampling, sequence.ids());
      chosen[i] = law.pick(draws_.token(sequence.sample(), sequence.answered()));
      if (options_.log_probs) sequence.log_prob += log_prob_of(scores, chosen[i]);
      if (options_.token_log_probs)
        sequence.token_log_probs.push_back(
            log_prob_of(scores, chosen[i], options_.sampling.greedy() ? 1 : options_.sampling.temperature));
      if (options_.sampling.greedy()) sequence.least_margin = std::min(sequence.least_margin, margin_of(scores));
    }
  });
  return chosen;
}

}  // namespace sf::gen
