// SPDX-License-Identifier: Apache-2.0
// The golden suite: every case folder under tests/golden and under each directory of SF_GOLDEN, checked by its `kind`.
// A checker registers itself; an unknown kind is a failure; a kind that is known but not built yet is reported as not
// run.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "base/json.h"
#include "ckpt/safetensors.h"

namespace sf::golden {

struct Case {
  std::filesystem::path dir;  // holds case.json and, mostly, tensors.safetensors
  Json json;
  bool has_tensors() const { return std::filesystem::exists(dir / "tensors.safetensors"); }
  ckpt::SafetensorsFile tensors() const { return ckpt::SafetensorsFile::open(dir / "tensors.safetensors"); }
};

struct Outcome {
  enum { kPassed, kFailed, kNotRun } verdict = kPassed;
  std::string detail;  // first difference, or why it was not run
  static Outcome passed() { return {}; }
  static Outcome failed(std::string why) { return {kFailed, std::move(why)}; }
  static Outcome not_run(std::string why) { return {kNotRun, std::move(why)}; }
};

using Checker = std::function<Outcome(const Case&)>;

// Place at namespace scope of check_KIND.cpp: static const bool registered = sf::golden::add("kind", check);
bool add(const std::string& kind, Checker checker);

// A comparison that was made; of a case's comparisons the one nearest to its bound is printed. Bounds of 0 are exact,
// and are not.
void note_error(std::string_view what, double error, double bound);

// |a - b| <= absolute + relative * |b| everywhere; otherwise the outcome names the worst element.
Outcome close(std::string_view what, const float* found, const float* wanted, size_t count, double absolute,
              double relative);

}  // namespace sf::golden
