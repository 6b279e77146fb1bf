// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "sf_kernels/optimizer.h"

namespace sf::ops {

static_assert(SquareSum::kLimbs == kernels::kSquareLimbs);

void adamw_step(std::span<float> master, std::span<const float> grad, std::span<float> exp_avg,
                std::span<float> exp_avg_sq, const AdamWStep& step) {
  const size_t n = master.size();
  SF_ASSERT(grad.size() == n && exp_avg.size() == n && exp_avg_sq.size() == n && step.step >= 1);
  kernels::adamw(
      master.data(), grad.data(), exp_avg.data(), exp_avg_sq.data(), n,
      kernels::adamw_constants(step.lr, step.beta1, step.beta2, step.eps, step.weight_decay, step.step, step.scale));
}

namespace {

// The nearest bf16 number, even on a tie; finite values.
float rounded(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000);
}

}  // namespace

int64_t adamw_step_bf16(std::span<float> master, std::span<const float> grad, std::span<float> exp_avg,
                        std::span<float> exp_avg_sq, const AdamWStep& step) {
  const size_t n = master.size();
  SF_ASSERT(grad.size() == n && exp_avg.size() == n && exp_avg_sq.size() == n && step.step >= 1);
  const auto t = static_cast<double>(step.step);
  const auto keep = static_cast<float>(1 - step.lr * step.weight_decay), rest1 = static_cast<float>(1 - step.beta1);
  const auto beta2 = static_cast<float>(step.beta2), rest2 = static_cast<float>(1 - step.beta2);
  const auto root = static_cast<float>(std::sqrt(1 - std::pow(step.beta2, t))), eps = static_cast<float>(step.eps);
  const auto size = static_cast<float>(-step.lr / (1 - std::pow(step.beta1, t)));
  const auto scale = static_cast<float>(step.scale);
  int64_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    const float before = master[i], g = rounded(rounded(grad[i]) * scale);
    const float p = step.weight_decay == 0 ? before : rounded(before * keep);
    exp_avg[i] = rounded(std::fma(rest1, g - exp_avg[i], exp_avg[i]));
    exp_avg_sq[i] = rounded(std::fma(rest2 * g, g, rounded(exp_avg_sq[i] * beta2)));
    const float below = rounded(rounded(rounded(std::sqrt(exp_avg_sq[i])) / root) + eps);
    master[i] = rounded(p + size * exp_avg[i] / below);
    kept += master[i] == before;
  }
  return kept;
}

void fold_add(std::span<float> acc, std::span<const float> g) {
  SF_ASSERT(acc.size() == g.size());
  kernels::fold_add(acc.data(), g.data(), g.size());
}

void fold_add_bf16(std::span<float> acc, std::span<const uint16_t> g) {
  SF_ASSERT(acc.size() == g.size());
  kernels::fold_add_bf16(acc.data(), g.data(), g.size());
}

std::optional<size_t> first_non_finite(std::span<const float> values) {
  const size_t at = kernels::first_non_finite(values.data(), values.size());
  return at == values.size() ? std::nullopt : std::optional(at);
}

void to_bf16(std::span<const float> from, std::span<uint16_t> to) {
  SF_ASSERT(from.size() == to.size());
  kernels::to_bf16(from.data(), to.data(), to.size());
}

void from_bf16(std::span<const uint16_t> from, std::span<float> to) {
  SF_ASSERT(from.size() == to.size());
  kernels::from_bf16(from.data(), to.data(), to.size());
}

namespace {

// Carries upwards: every limb but the last ends in [0, 2^32). The value stays.
void normalise(std::array<int64_t, SquareSum::kLimbs>& limbs) {
  int64_t carry = 0;
  for (size_t i = 0; i + 1 < limbs.size(); ++i) {
    const int64_t sum = limbs[i] + carry;
    limbs[i] = sum & 0xffffffff;
    carry = sum >> 32;
  }
  limbs.back() += carry;
}

}  // namespace

void SquareSum::add(std::span<const float> values) {
  constexpr size_t kPiece = size_t{1} << 24;  // below 2^24 * 2^32 in a limb: far from overflow
  while (!values.empty()) {
    const size_t n = std::min(kPiece, values.size());
    bad_ += kernels::add_squares(values.data(), n, limbs_.data());
    normalise(limbs_);
    values = values.subspan(n);
  }
}

void SquareSum::add(const SquareSum& other) {
  for (size_t i = 0; i < kLimbs; ++i) limbs_[i] += other.limbs_[i];
  bad_ += other.bad_;
  normalise(limbs_);
}

std::array<int64_t, SquareSum::kLimbs> SquareSum::limbs() const {
  return limbs_;
}

void SquareSum::set_limbs(const std::array<int64_t, kLimbs>& limbs) {
  limbs_ = limbs;
  normalise(limbs_);
}

double SquareSum::to_double() const {
  size_t top = kLimbs;
  while (top > 0 && limbs_[top - 1] == 0) --top;
  if (top == 0) return 0;
  // The three highest limbs hold at least 65 bits of the value; what lies below only matters as "not zero".
  unsigned __int128 head = 0;
  for (size_t part = 0; part < 3; ++part) {
    head = (head << 32) | (top > part ? static_cast<uint64_t>(limbs_[top - 1 - part]) : 0);
  }
  bool rest = false;
  for (size_t i = 0; i + 3 < top; ++i) rest = rest || limbs_[i] != 0;
  const uint64_t high = static_cast<uint64_t>(head >> 64), low = static_cast<uint64_t>(head);
  const int width = high ? 64 + std::bit_width(high) : std::bit_width(low);
  const int drop = std::max(0, width - 62);
  const unsigned __int128 dropped = head & ((static_cast<unsigned __int128>(1) << drop) - 1);
  uint64_t kept = static_cast<uint64_t>(head >> drop) << 1;
  if (rest || dropped != 0) kept |= 1;  // sticky bit: the conversion below rounds as the exact value would
  const int exponent = 32 * (static_cast<int>(top) - 3) - 300 + drop - 1;
  return std::ldexp(static_cast<double>(kept), exponent);
}

}  // namespace sf::ops
