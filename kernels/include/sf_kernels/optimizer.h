// SPDX-License-Identifier: Apache-2.0
// Element-wise work on fp32 spans. Element i of a result is a function of element i of the inputs: neither alignment
// nor the span's beginning nor the partition enters.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sf::kernels {

// Constants of one AdamW step, derived from fp64 once: see adamw_constants.
struct AdamWConstants {
  float scale, keep;          // gradient factor; 1 - lr wd
  float beta2, rest1, rest2;  // b2, 1 - b1, 1 - b2
  float step_size;            // lr / (1 - b1^t)
  float root;                 // 1 / sqrt(1 - b2^t)
  float eps;
};
AdamWConstants adamw_constants(double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step,
                               double scale);
// g = grad scale; p *= keep; m = fma(rest1, g - m, m); v = fma(rest2 g, g, v beta2);
// p = fma(-step_size, m / fma(sqrt(v), root, eps), p).
void adamw(float* p, const float* grad, float* m, float* v, size_t n, const AdamWConstants& c);

void fold_add(float* acc, const float* g, size_t n);  // acc += g
void fold_add_bf16(float* acc, const uint16_t* g, size_t n);
size_t first_non_finite(const float* values, size_t n);   // n if all are finite
void to_bf16(const float* from, uint16_t* to, size_t n);  // round to nearest even; NaN stays (quiet) NaN
void from_bf16(const uint16_t* from, float* to, size_t n);
float largest(const float* values, size_t n);  // of |values|; 0 for none. Finite values.
// float8_e4m3fn (no infinities) of from[i] * factor, to the nearest, even on a tie; beyond 448 it is 448. Finite
// values.
void to_e4m3(const float* from, uint8_t* to, size_t n, float factor);

// Adds the exact squares of finite values: value = sum of limbs[i] 2^(32 i - 300), each limb growing by less than 2^32
// a value. Returns how many values were not finite and therefore skipped.
size_t add_squares(const float* values, size_t n, int64_t* limbs);
constexpr size_t kSquareLimbs = 20;

namespace reference {
void adamw(float* p, const float* grad, float* m, float* v, size_t n, const AdamWConstants& c);
void to_bf16(const float* from, uint16_t* to, size_t n);
void to_e4m3(const float* from, uint8_t* to, size_t n, float factor);
size_t add_squares(const float* values, size_t n, int64_t* limbs);
}  // namespace reference

}  // namespace sf::kernels
