// SPDX-License-Identifier: Apache-2.0
// Learning rates as pure functions of the update's number (eagle_dflash 7.2).
#pragma once
#include <cstdint>
#include <string_view>

namespace sf::train {

enum class Decay { kCosine, kConstant };

struct Schedule {
  Decay decay = Decay::kCosine;
  double base = 1e-4;
  double warmup_ratio = 0;  // warm-up takes int(warmup_ratio * total) updates: base * (t + 1) / warm-up
  int64_t total = 0;        // updates of the whole run; the cosine ends here
  // The reference's cosine starts slightly above base and meets it one update later; the textbook form is the default.
  bool reference_quirks = false;
};

// kConfig for a setting out of range (base, ratio, total, a constant rate with nothing after its warm-up).
void check(const Schedule& schedule);
// Rate of update t (0: the first). After `total` the cosine stays at 0; the reference's recursion would rise again and
// does so here under its quirk.
double rate(const Schedule& schedule, int64_t update);

// "cosine" or "constant"; kConfig naming both otherwise.
Decay decay_from_name(std::string_view name);

}  // namespace sf::train
