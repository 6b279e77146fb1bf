// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/rows.h"

#include "sf_kernels/loss.h"
#include "table.h"

namespace sf::kernels {

namespace {

// Elements a piece of work has at least: handing over a smaller one costs more than it saves.
constexpr size_t kGrain = 16 << 10;

// body(begin, end) over [0, count) in units of `unit` items of `weight` elements each.
template <typename Body>
void pieces(const Parallel& parallel, size_t count, size_t weight, size_t unit, const Body& body) {
  const size_t least = weight >= kGrain ? 1 : kGrain / weight, chunk = (least + unit - 1) / unit * unit;
  run(parallel, (count + chunk - 1) / chunk,
      [&](size_t begin, size_t end) { body(begin * chunk, end * chunk < count ? end * chunk : count); });
}

}  // namespace

void rms_norm(const RmsNorm& op, void* y, float* rstd, const Parallel& parallel) {
  pieces(parallel, op.rows, op.width, 1, [&](size_t b, size_t e) { table().rms_norm(op, y, rstd, b, e); });
}

void rms_norm_backward(const RmsNorm& op, const void* g, const float* rstd, void* dx, float* dweight,
                       const Parallel& parallel) {
  if (dx) {
    pieces(parallel, op.rows, op.width, 1, [&](size_t b, size_t e) { table().rms_norm_dx(op, g, rstd, dx, b, e); });
  }
  if (!dweight) return;
  pieces(parallel, op.width, op.rows, 16,
         [&](size_t b, size_t e) { table().rms_norm_dweight(op, g, rstd, dweight, b, e); });
}

void swiglu(Type type, const void* gate, const void* up, void* y, size_t n, const Parallel& parallel) {
  pieces(parallel, n, 1, 1, [&](size_t b, size_t e) { table().swiglu(type, gate, up, y, b, e); });
}

void swiglu_backward(Type type, const void* gate, const void* up, const void* g, void* dgate, void* dup, size_t n,
                     const Parallel& parallel) {
  pieces(parallel, n, 1, 1, [&](size_t b, size_t e) { table().swiglu_backward(type, gate, up, g, dgate, dup, b, e); });
}

void rotary(const Rotary& op, const Parallel& parallel) {
  pieces(parallel, op.batch * op.length, op.heads * op.dims, 1, [&](size_t b, size_t e) { table().rotary(op, b, e); });
}

void hard_loss(const HardLoss& op, HardRow* out, const Parallel& parallel) {
  pieces(parallel, op.rows, op.width, 1, [&](size_t b, size_t e) { table().hard_loss(op, out, b, e); });
}

void soft_loss(const SoftLoss& op, SoftRow* out, const Parallel& parallel) {
  pieces(parallel, op.rows, op.width, 1, [&](size_t b, size_t e) { table().soft_loss(op, out, b, e); });
}

void distance_loss(const DistanceLoss& op, DistanceRow* out, const Parallel& parallel) {
  pieces(parallel, op.rows, op.width, 1, [&](size_t b, size_t e) { table().distance_loss(op, out, b, e); });
}

void label_loss(const LabelLoss& op, LabelRow* seen, const Parallel& parallel) {
  pieces(parallel, op.rows, op.width, 1, [&](size_t b, size_t e) { table().label_loss(op, seen, b, e); });
}

}  // namespace sf::kernels
