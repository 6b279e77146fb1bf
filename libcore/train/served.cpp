// SPDX-License-Identifier: Apache-2.0
#include "train/served.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/present.h"
#include "ckpt/checkpoint.h"

namespace sf::train {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr int64_t kMostCount = int64_t{1} << 31;  // a product of two stays whole

fs::path folder_of(const fs::path& run_dir) {
  return run_dir / "acceptance";
}

std::string name_of(int64_t step) {
  return fmt::format("step-{}", step);
}

// Steps of the records that are there, ascending.
std::vector<int64_t> recorded(const fs::path& run_dir) {
  std::vector<int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of(run_dir), ignored)) {
    const std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (!name.starts_with("step-")) continue;
    auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (error == std::errc() && std::string_view(end) == ".json") steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Json numbers(const std::vector<int64_t>& values) {
  Json list = Json::array();
  for (int64_t value : values) list.push(value);
  return list;
}

int64_t count_in(const Json& json, std::string_view key) {
  const int64_t value = json.at(key).as_int();
  SF_CHECK(value >= 0 && value < kMostCount, Exit::kData, "{} is {}, wanted a count below 2^31", key, value);
  return value;
}

std::vector<int64_t> counts_in(const Json& json, std::string_view key) {
  std::vector<int64_t> values;
  for (const Json& value : json.at(key).as_array()) values.push_back(value.as_int());
  return values;
}

}  // namespace

double Served::length() const {
  return verifications > 0 ? static_cast<double>(committed) / static_cast<double>(verifications) : 0;
}

Json Served::to_json() const {
  Json json = Json::object();
  json.set("step", step).set("checkpoint", checkpoint).set("conditions", conditions);
  json.set("acceptance_length", verifications > 0 ? Json(length()) : Json());
  json.set("committed", committed).set("verifications", verifications);
  json.set("prompts", prompts).set("new_tokens", new_tokens);
  json.set("tried", numbers(tried)).set("accepted", numbers(accepted));
  if (training.is_object()) json.set("training", training);
  return json;
}

Served served_from_json(const Json& json) {
  Served served{.step = json.at("step").as_int(),
                .checkpoint = json.at("checkpoint").as_string(),
                .conditions = json.at("conditions").as_string(),
                .prompts = count_in(json, "prompts"),
                .new_tokens = count_in(json, "new_tokens"),
                .committed = count_in(json, "committed"),
                .verifications = count_in(json, "verifications"),
                .tried = counts_in(json, "tried"),
                .accepted = counts_in(json, "accepted"),
                .training = {}};
  if (const Json* training = json.find("training")) served.training = *training;
  return served;
}

bool is_better(const Served& a, const Served& b) {
  const int64_t left = a.committed * b.verifications, right = b.committed * a.verifications;
  return fault("train.best_takes_ties") ? left >= right : left > right;
}

void write_served(const fs::path& run_dir, const Served& served) {
  fs::create_directories(folder_of(run_dir));
  for (int64_t step : recorded(run_dir))
    if (step > served.step) fs::remove(folder_of(run_dir) / (name_of(step) + ".json"));
  write_atomic(folder_of(run_dir) / (name_of(served.step) + ".json"), served.to_json().dump() + "\n");
}

std::optional<Served> read_served(const fs::path& run_dir, int64_t step, const std::string& conditions) {
  const fs::path file = folder_of(run_dir) / (name_of(step) + ".json"), dir = run_dir / name_of(step);
  if (!is_present(file) || !is_present(dir / "manifest.json")) return std::nullopt;
  Served served;
  try {
    served = served_from_json(Json::parse(read_file(file, kMostBytes), file.string()));
  } catch (Error& error) {
    error.add_context(file.string());
    throw;
  }
  const bool same = served.step == step && served.conditions == conditions &&
                    served.checkpoint == ckpt::Checkpoint::open(dir).manifest().identity;
  return same || fault("train.any_record") ? std::optional(served) : std::nullopt;
}

std::optional<Served> name_best_served(const fs::path& run_dir, const std::string& conditions) {
  std::optional<Served> best;
  for (int64_t step : recorded(run_dir)) {
    std::optional<Served> one = read_served(run_dir, step, conditions);
    if (one && (!best || is_better(*one, *best))) best = std::move(one);
  }
  if (!best) return std::nullopt;
  const std::optional<fs::path> named = ckpt::best_checkpoint(run_dir);
  if (!named || named->filename() != name_of(best->step)) ckpt::point_best(run_dir, name_of(best->step));
  return best;
}

}  // namespace sf::train
