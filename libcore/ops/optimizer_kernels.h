// SPDX-License-Identifier: Apache-2.0
// Spans of fp32 under the engine: AdamW, the fold, the exact norm. An element's result never depends on where its
// interval begins (shardforge(7), Numbers). Spans of one call have equal sizes.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace sf::ops {

struct AdamWStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  int64_t step = 1;  // 1 for the first update
  double scale = 1;  // multiplies the gradient first (clipping, averaging)
};
// PyTorch's AdamW, decoupled decay: p -= lr wd p; m += (1 - b1)(g - m); v = b2 v + (1 - b2) g^2;
// p -= lr / (1 - b1^step) * m / (sqrt(v) / sqrt(1 - b2^step) + eps). fp32 arithmetic on fp64-derived constants.
void adamw_step(std::span<float> master, std::span<const float> grad, std::span<float> exp_avg,
                std::span<float> exp_avg_sq, const AdamWStep& step);

// The same on bf16 numbers, which the spans hold widened: the gradient and the result of each of PyTorch's operations
// are rounded, where its AdamW of one tensor rounds them (rl_lora L-14). Returns how many masters kept their value.
int64_t adamw_step_bf16(std::span<float> master, std::span<const float> grad, std::span<float> exp_avg,
                        std::span<float> exp_avg_sq, const AdamWStep& step);

// acc[i] += g[i]; the bf16 form widens first.
void fold_add(std::span<float> acc, std::span<const float> g);
void fold_add_bf16(std::span<float> acc, std::span<const uint16_t> g);

// Index of the first NaN or infinity.
std::optional<size_t> first_non_finite(std::span<const float> values);

void to_bf16(std::span<const float> from, std::span<uint16_t> to);  // round to nearest even
void from_bf16(std::span<const uint16_t> from, std::span<float> to);

// The exact sum of squares of fp32 values, in any order: integer limbs, so that adding the limbs of all ranks as int64
// (all_reduce) gives the exact sum of the whole. Holds up to 2^31 values before normalise() must be called; add() calls
// it.
class SquareSum {
 public:
  static constexpr size_t kLimbs = 20;
  // Values must be finite (see first_non_finite); others are counted in `bad` and not added.
  void add(std::span<const float> values);
  void add(const SquareSum& other);
  // Limbs to sum over ranks, element by element, before set_limbs() on each. At most 2^20 ranks.
  std::array<int64_t, kLimbs> limbs() const;
  void set_limbs(const std::array<int64_t, kLimbs>& limbs);
  double to_double() const;  // the exact sum, rounded once
  uint64_t bad() const { return bad_; }

 private:
  std::array<int64_t, kLimbs> limbs_{};  // value = sum of limbs_[i] * 2^(32 i - 300)
  uint64_t bad_ = 0;
};

}  // namespace sf::ops
