// SPDX-License-Identifier: Apache-2.0
// Whether sampled completions follow the target's law: a chi-squared statistic over all of three tokens behind one
// prompt, the law by enumeration of a small vocabulary.
#pragma once
#include <cmath>
#include <map>
#include <vector>

#include "gen/generate.h"

namespace sf::gen {

inline std::vector<Prompt> fit_prompts(int64_t samples) {
  std::vector<Prompt> all;
  for (int64_t i = 0; i < samples; ++i) all.push_back({static_cast<uint64_t>(i), {1, 2}});
  return all;
}

struct Fit {
  double chi_square = 0, cells = 0;
  // Mean `cells`, variance 2 `cells` at most: five standard deviations; a fixed seed does not flicker.
  double most() const { return cells + 5 * std::sqrt(2 * cells); }
};

inline Law law_after(Target& target, const Sampling& sampling, const std::vector<int32_t>& ids) {
  Cache cache = target.make_cache(16);
  at::Tensor states = target.prefill(cache, ids).final_norm;
  at::Tensor logits = target.logits(states.narrow(0, states.size(0) - 1, 1));
  return law_of({logits.const_data_ptr<float>(), static_cast<size_t>(logits.size(1))}, sampling, ids);
}

// Completions of fit_prompts(), three tokens each.
inline Fit fit_of(Target& target, const GenerateOptions& options, const std::map<size_t, Completion>& found) {
  std::map<std::vector<int32_t>, double> seen;
  for (const auto& [index, completion] : found) seen[completion.ids] += 1;
  const auto samples = static_cast<double>(found.size());
  Fit fit;
  const Law first = law_after(target, options.sampling, {1, 2});
  for (int32_t a : first.ids) {
    const Law second = law_after(target, options.sampling, {1, 2, a});
    for (int32_t b : second.ids) {
      const Law third = law_after(target, options.sampling, {1, 2, a, b});
      for (int32_t c : third.ids) {
        const double wanted = samples * first.of(a) * second.of(b) * third.of(c);
        const double difference = seen[{a, b, c}] - wanted;
        if (wanted < 5) continue;  // the usual condition on a cell
        fit.chi_square += difference * difference / wanted;
        ++fit.cells;
      }
    }
  }
  return fit;
}

}  // namespace sf::gen
