// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/loss.h"

#include "functions.h"
#include "lanes.h"
#include "spans.h"

namespace sf::kernels::SF_ISA {

namespace {

template <typename T>
SF_INLINE float row_top(const T* x, size_t width) {
  const Lanes lowest = splat(-__builtin_inff());
  Lanes top = lowest;
  spans(width,
        [&](size_t i, size_t n) { top = max(n == kLanes ? take(x + i, n) : keep(take(x + i, n), n, lowest), top); });
  return highest(top);
}

template <typename T>
SF_INLINE int32_t first_at(const T* x, size_t width, float value) {
  for (size_t i = 0; i < width; i += kLanes) {
    const size_t n = width - i < kLanes ? width - i : kLanes;
    const uint32_t hits = equal(take(x + i, n), splat(value)) & ((1u << n) - 1);
    if (hits) return static_cast<int32_t>(i) + __builtin_ctz(hits);
  }
  return 0;  // only a row of NaN
}

// What makes e^(value - top) a probability.
struct SoftMax {
  float top = 0, scale = 1;
};

// The gradient in z's place. Widths shrink in place: a chunk is read before anything at or behind it is written.
template <typename T>
void soft_gradient(float* z, const float* t, size_t width, SoftMax of_z, SoftMax of_t, float weight) {
  T* to = reinterpret_cast<T*>(z);
  const Lanes z_top = splat(of_z.top), t_top = splat(of_t.top), z_scale = splat(of_z.scale),
              t_scale = splat(of_t.scale), w = splat(weight);
  spans(width, [&](size_t i, size_t n) {
    const Lanes q = exp(take(z + i, n) - z_top) * z_scale, p = exp(take(t + i, n) - t_top) * t_scale;
    asm volatile("" : : : "memory");  // the two types share memory: this read stays before that write
    give(to + i, (q - p) * w, n);
  });
}

SF_INLINE float common_share(const float* z, const float* t, size_t width, SoftMax of_z, float target_lse) {
  const Lanes zero = splat(0.0f), top = splat(of_z.top), scale = splat(of_z.scale), lse = splat(target_lse);
  Lanes common = zero;
  spans(width, [&](size_t i, size_t n) {
    // The target's probability cannot pass 1; a log-sum-exp that says otherwise must not overflow either.
    const Lanes q = exp(min(splat(88.0f), take(t + i, n) - lse));
    const Lanes shared = min(exp(take(z + i, n) - top) * scale, q);
    common = common + (n == kLanes ? shared : keep(shared, n, zero));
  });
  return sum(common);
}

// -sum P log_softmax(z); leaves both soft-maxima behind.
SF_INLINE float soft_nll(const float* z, const float* t, size_t width, SoftMax& of_z, SoftMax& of_t) {
  const Lanes zero = splat(0.0f), z_top = splat(of_z.top), t_top = splat(of_t.top);
  Lanes z_total = zero, t_total = zero, dot = zero;
  spans(width, [&](size_t i, size_t n) {
    const Lanes zi = take(z + i, n) - z_top, ti = exp(take(t + i, n) - t_top), zexp = exp(zi);
    z_total = z_total + (n == kLanes ? zexp : keep(zexp, n, zero));
    t_total = t_total + (n == kLanes ? ti : keep(ti, n, zero));
    dot = n == kLanes ? fma(ti, zi, dot) : keep(fma(ti, zi, dot), n, dot);
  });
  const float z_sum = sum(z_total), t_sum = sum(t_total);
  of_z.scale = 1.0f / z_sum;
  of_t.scale = 1.0f / t_sum;
  return static_cast<float>(__builtin_log(static_cast<double>(z_sum))) - sum(dot) / t_sum;
}

}  // namespace

void soft_loss(const SoftLoss& op, SoftRow* out, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    const size_t teacher = static_cast<size_t>(op.teacher[row]);
    float* z = op.z + row * op.width;
    const float* t = op.t + teacher * op.width;
    const float weight = op.weight[row];
    SoftMax of_z{row_top(z, op.width)}, of_t{row_top(t, op.width)};
    out[row] = SoftRow{.argmax = first_at(z, op.width, of_z.top)};
    if (weight != 0) {
      out[row].nll = soft_nll(z, t, op.width, of_z, of_t);
      out[row].loss = weight * out[row].nll;
      if (op.target_lse) out[row].acceptance = common_share(z, t, op.width, of_z, op.target_lse[teacher]);
    }
    if (!op.gradient) continue;
    if (op.type == Type::kF32)
      soft_gradient<float>(z, t, op.width, of_z, of_t, weight);
    else
      soft_gradient<uint16_t>(z, t, op.width, of_z, of_t, weight);
  }
}

namespace {

// e^(z - top) was left in z. Widths shrink in place: a chunk is read before anything at or behind it is written.
template <typename T>
void hard_gradient(float* z, size_t width, size_t label, float scale, float weight) {
  const float at_label = (z[label] * scale - 1.0f) * weight;
  T* to = reinterpret_cast<T*>(z);
  const Lanes factor = splat(scale), w = splat(weight);
  spans(width, [&](size_t i, size_t n) {
    const Lanes value = take(z + i, n);
    asm volatile("" : : : "memory");  // the two types share memory: this read stays before that write
    give(to + i, value * factor * w, n);
  });
  float one[kLanes] = {at_label};
  give(to + label, load(one), 1);
}

}  // namespace

void hard_loss(const HardLoss& op, HardRow* out, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    float* z = op.z + row * op.width;
    const size_t label = static_cast<size_t>(op.label[row]);
    const float top = row_top(z, op.width), at_label = z[label];
    out[row].argmax = first_at(z, op.width, top);
    // Beyond `lowest` nothing is left of e^z; the product with it must not become 0 times infinity.
    const Lanes zero = splat(0.0f), lowest = splat(-104.0f);
    Lanes total = zero, moment = zero;
    spans(op.width, [&](size_t i, size_t n) {
      const Lanes below = take(z + i, n) - splat(top), e = exp(below), term = fma(e, max(below, lowest), moment);
      total = total + (n == kLanes ? e : keep(e, n, zero));
      moment = n == kLanes ? term : keep(term, n, moment);
      if (op.gradient) give(z + i, e, n);
    });
    const float sum_of_all = sum(total),
                log_of_all = static_cast<float>(__builtin_log(static_cast<double>(sum_of_all)));
    out[row].lse = top + log_of_all;
    out[row].entropy = log_of_all - sum(moment) / sum_of_all;
    out[row].nll = out[row].lse - at_label;
    out[row].loss = op.weight[row] * out[row].nll;
    if (!op.gradient) continue;
    if (op.type == Type::kF32)
      hard_gradient<float>(z, op.width, label, 1.0f / sum_of_all, op.weight[row]);
    else
      hard_gradient<uint16_t>(z, op.width, label, 1.0f / sum_of_all, op.weight[row]);
  }
}

namespace {

// Leaves e^(value - top) in place; their sum.
SF_INLINE float exponentials(float* x, size_t width, float top) {
  const Lanes zero = splat(0.0f), shift = splat(top);
  Lanes total = zero;
  spans(width, [&](size_t i, size_t n) {
    const Lanes e = exp(take(x + i, n) - shift);
    total = total + (n == kLanes ? e : keep(e, n, zero));
    give(x + i, e, n);
  });
  return sum(total);
}

// Of probabilities: +1 where p > q, -1 where p < q, 0 where they are equal.
SF_INLINE Lanes side(Lanes p, Lanes q) {
  const Lanes zero = splat(0.0f), one = splat(1.0f);
  return where_below(q, p, one, where_below(p, q, zero - one, zero));
}

// What a row's gradient is made of: p (nll + l1 (side - mean)), less nll at the label.
struct Slope {
  float nll = 0, l1 = 0, mean = 0;
};

// Widths shrink in place: a chunk is read before anything at or behind it is written.
template <typename T>
void distance_gradient(float* z, const float* t, size_t width, size_t label, float z_scale, float t_scale,
                       Slope slope) {
  const float at_label = z[label] * z_scale, teacher_at_label = t ? t[label] * t_scale : at_label;
  const Lanes of_z = splat(z_scale), of_t = splat(t_scale), mean = splat(slope.mean), l1 = splat(slope.l1),
              nll = splat(slope.nll);
  T* to = reinterpret_cast<T*>(z);
  spans(width, [&](size_t i, size_t n) {
    const Lanes p = take(z + i, n) * of_z, q = t ? take(t + i, n) * of_t : p;
    asm volatile("" : : : "memory");  // the two types share memory: this read stays before that write
    give(to + i, p * fma(l1, side(p, q) - mean, nll), n);
  });
  const float way = at_label > teacher_at_label ? 1.0f : at_label < teacher_at_label ? -1.0f : 0.0f;
  float one[kLanes] = {at_label * (slope.l1 * (way - slope.mean)) + slope.nll * (at_label - 1.0f)};
  give(to + label, load(one), 1);
}

// sum |p - q|, and in `mean` the sum of p side(p, q).
SF_INLINE float distance(const float* z, const float* t, size_t width, float z_scale, float t_scale, float& mean) {
  const Lanes zero = splat(0.0f), of_z = splat(z_scale), of_t = splat(t_scale);
  Lanes apart = zero, sided = zero;
  spans(width, [&](size_t i, size_t n) {
    const Lanes p = take(z + i, n) * of_z, q = take(t + i, n) * of_t, d = p - q, way = side(p, q);
    apart = apart + (n == kLanes ? max(d, zero - d) : keep(max(d, zero - d), n, zero));
    sided = sided + (n == kLanes ? p * way : keep(p * way, n, zero));
  });
  mean = sum(sided);
  return sum(apart);
}

void distance_row(const DistanceLoss& op, size_t row, DistanceRow& out) {
  float *z = op.z + row * op.width, *t = op.t ? op.t + row * op.width : nullptr;
  const size_t label = static_cast<size_t>(op.label[row]);
  const float top = row_top(z, op.width), below = top - z[label];
  out = DistanceRow{.argmax = first_at(z, op.width, top)};
  const float total = exponentials(z, op.width, top);
  out.top = 1.0f / total;
  out.nll = static_cast<float>(__builtin_log(static_cast<double>(total))) + below;
  Slope slope{op.nll_weight[row], 0, 0};
  if (t) {
    const float teacher_top = row_top(t, op.width);
    out.teacher_argmax = first_at(t, op.width, teacher_top);
    out.teacher_top = 1.0f / exponentials(t, op.width, teacher_top);
    slope.l1 = op.l1_weight[row];
    out.l1 = distance(z, t, op.width, out.top, out.teacher_top, slope.mean);
  }
  out.loss = slope.nll * out.nll + slope.l1 * out.l1;
  if (!op.gradient) return;
  if (op.type == Type::kF32)
    distance_gradient<float>(z, t, op.width, label, out.top, out.teacher_top, slope);
  else
    distance_gradient<uint16_t>(z, t, op.width, label, out.top, out.teacher_top, slope);
}

}  // namespace

void distance_loss(const DistanceLoss& op, DistanceRow* out, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) distance_row(op, row, out[row]);
}

void label_loss(const LabelLoss& op, LabelRow* seen, size_t begin, size_t end) {
  const Lanes zero = splat(0.0f);
  for (size_t row = begin; row < end; ++row) {
    float* z = op.z + row * op.width;
    LabelRow& out = seen[row];
    const int64_t label = op.label[row] - op.first;
    const bool here = label >= 0 && label < static_cast<int64_t>(op.width);
    const float best = row_top(z, op.width), top = out.top > best ? out.top : best;
    if (best > out.top) out.argmax = static_cast<int32_t>(op.first) + first_at(z, op.width, best);
    if (here) out.at_label = z[label];
    const Lanes shift = splat(top);
    Lanes total = zero;
    spans(op.width, [&](size_t i, size_t n) {
      const Lanes e = exp(take(z + i, n) - shift);
      total = total + (n == kLanes ? e : keep(e, n, zero));
      if (op.shrink) give(z + i, e, n);
    });
    const float shrink = out.total == 0 ? 0 : highest(exp(splat(out.top - top)));
    out.total = shrink * out.total + sum(total);
    out.top = top;
    if (!op.shrink) continue;
    op.shrink[row] = shrink;
    if (here) z[label] = 0;
  }
}

}  // namespace sf::kernels::SF_ISA
