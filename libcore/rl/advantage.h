// SPDX-License-Identifier: Apache-2.0
// What a response is worth beside the other responses to its prompt. Source: rl_lora 4.2.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sf::rl {

// grpo: (score - mean) / (sample deviation + epsilon). dr-grpo: score - mean. rloo: score minus the mean of the others.
// opo: score minus the mean weighted by length. pass-k: the best one's lead over the second, over the deviation +
// epsilon; 0 for all others.
enum class Estimator { kGrpo, kDrGrpo, kRloo, kOpo, kPassK };
Estimator estimator_from_name(std::string_view name);  // kConfig naming those there are

// A group of one has nothing to compare with. raw: its score counts as it is (over 1 + epsilon under grpo), as in the
// reference; zero: it is worth nothing; drop: the same, and `kept` says so.
enum class Singleton { kRaw, kZero, kDrop };
Singleton singleton_from_name(std::string_view name);  // kConfig

struct AdvantageOptions {
  Estimator estimator = Estimator::kGrpo;
  Singleton singleton = Singleton::kRaw;
  double epsilon = 1e-6;
};

struct Advantages {
  std::vector<double> of;     // by response
  std::vector<uint8_t> kept;  // 0: a dropped group of one
  int64_t groups = 0;
  int64_t singletons = 0;     // groups of one
  int64_t zero_variance = 0;  // groups of several equal scores: no gradient, yet tokens in the denominator
};

// Groups are told by id, wherever they stand. `lengths`: tokens of each response; read by opo alone. kData for a score
// that is no finite number; kConfig for pass-k of a group of one.
Advantages advantages(std::span<const std::string> groups, std::span<const double> scores,
                      const AdvantageOptions& options, std::span<const int64_t> lengths = {});

// Dynamic sampling (DAPO): 1 for each response whose group holds different scores, which are what teaches.
std::vector<uint8_t> teaches(std::span<const std::string> groups, std::span<const double> scores);

// What a response of `length` tokens loses (0 or below) where at most `most` are allowed and the last `buffer` of them
// cost up to `factor` (rl_lora R-51). Requires 0 < buffer <= most.
double overlong_penalty(int64_t length, int64_t most, int64_t buffer, double factor);

}  // namespace sf::rl
