// SPDX-License-Identifier: Apache-2.0
// Advantages of every estimator, token by token. Bound 1e-5 relative, 1e-6 absolute: the reference sums in fp32.
#include "golden.h"
#include "grpo_tensors.h"
#include "rl/advantage.h"
#include "rl/ragged.h"

namespace sf::golden {
namespace {

struct Rewards {
  std::vector<std::string> groups;
  std::vector<double> scores;
  std::vector<uint8_t> mask;
  std::vector<int64_t> lengths;
  int64_t width = 0;
};

Rewards read(const Case& c, const ckpt::SafetensorsFile& file) {
  Rewards r;
  for (const Json& id : c.json.at("uid").as_array()) r.groups.push_back(id.as_string());
  const std::vector<double> tokens = numbers(file, "token_level_rewards");
  r.mask = mask_of(file, "response_mask");
  r.width = file.view("response_mask").shape.at(1);
  for (size_t s = 0; s < r.groups.size(); ++s) {
    double score = 0;
    int64_t length = 0;
    for (int64_t t = 0; t < r.width; ++t) {
      score += tokens[s * static_cast<size_t>(r.width) + static_cast<size_t>(t)];
      length += r.mask[s * static_cast<size_t>(r.width) + static_cast<size_t>(t)];
    }
    r.scores.push_back(score);
    r.lengths.push_back(length);
  }
  return r;
}

// The case's rows among ours (all of them if empty), spread over their tokens.
std::vector<double> spread(const Rewards& r, const rl::Advantages& advantages, const std::vector<int64_t>& rows) {
  std::vector<double> result;
  for (int64_t s : rows)
    for (int64_t t = 0; t < r.width; ++t)
      result.push_back(advantages.of[static_cast<size_t>(s)] * r.mask[static_cast<size_t>(s * r.width + t)]);
  return result;
}

Outcome check(const Case& c) {
  const ckpt::SafetensorsFile file = c.tensors();
  const Rewards r = read(c, file);
  std::vector<int64_t> all;
  for (size_t s = 0; s < r.groups.size(); ++s) all.push_back(static_cast<int64_t>(s));
  const double epsilon = c.json.at("epsilon").as_double();
  auto one = [&](const char* tensor, rl::Estimator estimator) {
    const rl::Advantages found =
        rl::advantages(r.groups, r.scores, {.estimator = estimator, .epsilon = epsilon}, r.lengths);
    return close(tensor, spread(r, found, all), numbers(file, tensor), 1e-6, 1e-5);
  };
  for (const Outcome& each :
       {one("grpo/norm_std_True", rl::Estimator::kGrpo), one("grpo/norm_std_False", rl::Estimator::kDrGrpo),
        one("grpo_vectorized/norm_std_True", rl::Estimator::kGrpo),
        one("grpo_vectorized/norm_std_False", rl::Estimator::kDrGrpo), one("rloo", rl::Estimator::kRloo),
        one("opo", rl::Estimator::kOpo)})
    if (each.verdict != Outcome::kPassed) return each;
  // pass-k has no answer for a group of one: the case leaves that row out.
  const TensorView view = file.view("passk/rows");
  const auto* row = reinterpret_cast<const int64_t*>(view.data);
  const std::vector<int64_t> rows(row, row + numel(view.shape));
  Rewards kept = r;
  kept.groups.clear(), kept.scores.clear();
  for (int64_t s : rows) {
    kept.groups.push_back(r.groups[static_cast<size_t>(s)]);
    kept.scores.push_back(r.scores[static_cast<size_t>(s)]);
  }
  const rl::Advantages best =
      rl::advantages(kept.groups, kept.scores, {.estimator = rl::Estimator::kPassK, .epsilon = epsilon});
  rl::Advantages back{std::vector<double>(r.groups.size(), 0)};
  for (size_t i = 0; i < rows.size(); ++i) back.of[static_cast<size_t>(rows[i])] = best.of[i];
  return close("passk/advantages", spread(r, back, rows), numbers(file, "passk/advantages"), 1e-6, 1e-5);
}

const bool registered = add("grpo_advantage", check);

}  // namespace
}  // namespace sf::golden
