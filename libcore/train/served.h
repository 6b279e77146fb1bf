// SPDX-License-Identifier: Apache-2.0
// What decoding held-out prompts with a run's checkpoints gave: RUN/acceptance/step-N.json, and RUN/best by it. Such a
// record counts only for the very checkpoint, and under the conditions, that it was made of.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace sf::train {

// Counts over all prompts, whoever decoded them: equal for every world size.
struct Served {
  int64_t step = 0;
  std::string checkpoint;  // its identity
  std::string conditions;  // digest of target, prompts and limits
  int64_t prompts = 0, new_tokens = 0;
  int64_t committed = 0, verifications = 0;  // as gen::SpeculativeStats
  std::vector<int64_t> tried, accepted;      // by place in a proposal
  Json training;  // the same step's estimates from the training window, by their own names; null: not known

  // Acceptance length: committed tokens a verification; 0 without one.
  double length() const;
  Json to_json() const;  // flat but for "training"
  friend bool operator==(const Served&, const Served&) = default;
};
// kData naming the member.
Served served_from_json(const Json& json);

// Whether a's acceptance length is above b's: exact, in whole numbers.
bool is_better(const Served& a, const Served& b);

// Publishes the record by rename. Records of later steps go: they are of a run that was gone back on.
void write_served(const std::filesystem::path& run_dir, const Served& served);
// The record of RUN/step-N, if there is one of this checkpoint under these conditions.
std::optional<Served> read_served(const std::filesystem::path& run_dir, int64_t step, const std::string& conditions);
// Makes RUN/best name the one of greatest acceptance length among the checkpoints that are there, the oldest of equal
// ones; its record. nullopt, and nothing is moved, without a record under these conditions.
std::optional<Served> name_best_served(const std::filesystem::path& run_dir, const std::string& conditions);

}  // namespace sf::train
