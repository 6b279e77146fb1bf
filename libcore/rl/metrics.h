// SPDX-License-Identifier: Apache-2.0
// Numbers of a step under the reference's names, each with the one way in which several of it become one. Source:
// rl_lora 4.7.
#pragma once
#include <string>
#include <vector>

#include "rl/ragged.h"

namespace sf::rl {

// Said by whoever makes the number, never guessed from its name (rl_lora G-60).
enum class Reduction { kMean, kSum, kMax, kMin };
struct Metric {
  std::string name;
  double value = 0;
  Reduction kind = Reduction::kMean;
};
using Metrics = std::vector<Metric>;

// Metrics of one name become one, in the order in which names first come. kSoftware if they are of different kinds.
Metrics reduced(const Metrics& metrics);

// deviation: of a sample, n - 1; 0 for one value. Requires a value.
struct Spread {
  double mean = 0, max = 0, min = 0, deviation = 0;
};
Spread spread_of(Numbers values);

struct Gap;
// How far the sampler's probabilities and the learner's lie apart: training/rollout_probs_diff_{mean,max,std,valid} and
// rollout_probs_corr over probabilities; rollout_corr/{kl, k3_kl} over log-probabilities, unclamped; perplexities;
// chi2_token, chi2_seq. Nothing on the mask: valid 0, and no number beside it.
Metrics mismatch(const Gap& gap);

// {mean,max,min} of a name, under "NAME/".
void add_spread(Metrics& to, const std::string& name, Numbers values);
// response_length or prompt_length: {mean,max,min} and clip_ratio, the share at `most`.
void add_lengths(Metrics& to, const std::string& name, Numbers lengths, double most);

}  // namespace sf::rl
