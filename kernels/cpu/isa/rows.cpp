// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/rows.h"

#include "functions.h"
#include "lanes.h"
#include "spans.h"

namespace sf::kernels::SF_ISA {

namespace {

// What a row is multiplied with, and what the weight is: plain, or zero-centred.
template <typename T>
struct Plain {
  SF_INLINE Lanes weight(const T* w, size_t n) { return take(w, n); }
  SF_INLINE Lanes unit(Lanes x) { return rounded<T>(x); }
};
template <typename T>
struct Centred {
  SF_INLINE Lanes weight(const T* w, size_t n) { return splat(1.0f) + take(w, n); }
  SF_INLINE Lanes unit(Lanes x) { return x; }
};

template <typename T, typename Form>
void norm_rows(const RmsNorm& op, T* y, float* rstd, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(op.x) + row * op.x_row;
    const T* weight = static_cast<const T*>(op.weight) + row % op.period * op.width;
    Lanes squares = splat(0.0f);
    spans(op.width, [&](size_t i, size_t n) {
      const Lanes value = take(x + i, n);
      squares = fma(value, value, squares);
    });
    const float r = 1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(op.width) + op.eps);
    if (rstd) rstd[row] = r;
    T* to = y + row * op.width;
    spans(op.width, [&](size_t i, size_t n) {
      give(to + i, Form::unit(take(x + i, n) * splat(r)) * Form::weight(weight + i, n), n);
    });
  }
}

template <typename T, typename Form>
void norm_gradient_rows(const RmsNorm& op, const T* g, const float* rstd, T* dx, size_t begin, size_t end) {
  for (size_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(op.x) + row * op.x_row;
    const T* weight = static_cast<const T*>(op.weight) + row % op.period * op.width;
    const T* from = g + row * op.width;
    const Lanes r = splat(rstd[row]);
    Lanes dot = splat(0.0f);
    spans(op.width, [&](size_t i, size_t n) {
      dot = fma(take(from + i, n) * Form::weight(weight + i, n), take(x + i, n) * r, dot);
    });
    const Lanes mean = splat(sum(dot) / static_cast<float>(op.width));
    T* to = dx + row * op.width;
    spans(op.width, [&](size_t i, size_t n) {
      const Lanes scaled = take(from + i, n) * Form::weight(weight + i, n), unit = take(x + i, n) * r;
      give(to + i, (scaled - unit * mean) * r, n);
    });
  }
}

template <typename T, typename Form>
void norm_gradient_weight(const RmsNorm& op, const T* g, const float* rstd, float* dweight, size_t begin, size_t end) {
  for (size_t column = begin; column < end; column += kLanes) {
    const size_t n = end - column < kLanes ? end - column : kLanes;
    const T* x = static_cast<const T*>(op.x) + column;
    const T* from = g + column;
    for (size_t first = 0; first < op.period; ++first) {
      Lanes total = splat(0.0f);
      for (size_t row = first; row < op.rows; row += op.period) {
        const Lanes unit = Form::unit(take(x + row * op.x_row, n) * splat(rstd[row]));
        total = fma(take(from + row * op.width, n), unit, total);
      }
      give(dweight + first * op.width + column, total, n);
    }
  }
}

SF_INLINE Lanes sigmoid(Lanes x) {
  return splat(1.0f) / (splat(1.0f) + exp(min(splat(88.0f), splat(0.0f) - x)));
}

template <typename T>
void gated(const T* gate, const T* up, T* y, size_t begin, size_t end) {
  spans(end - begin, [&](size_t i, size_t n) {
    const Lanes value = take(gate + begin + i, n);
    give(y + begin + i, value * sigmoid(value) * take(up + begin + i, n), n);
  });
}

template <typename T>
void gated_gradient(const T* gate, const T* up, const T* g, T* dgate, T* dup, size_t begin, size_t end) {
  const Lanes one = splat(1.0f);
  spans(end - begin, [&](size_t i, size_t n) {
    i += begin;
    const Lanes value = take(gate + i, n), s = sigmoid(value), upstream = take(g + i, n);
    const Lanes slope = s * fma(value, one - s, one);
    give(dgate + i, upstream * take(up + i, n) * slope, n);
    give(dup + i, upstream * (value * s), n);
  });
}

template <typename T>
void turn(const Rotary& op, size_t begin, size_t end) {
  for (size_t token = begin; token < end; ++token) {
    const size_t b = token / op.length, s = token % op.length;
    const size_t position = static_cast<size_t>(op.positions[b * op.position_row + s]);
    const float* cos = op.cos + position * op.half;
    const float* sin = op.sin + position * op.half;
    for (size_t h = 0; h < op.heads; ++h) {
      const T* x = static_cast<const T*>(op.x) + b * op.x_batch + h * op.x_head + s * op.x_token;
      T* y = static_cast<T*>(op.y) + b * op.y_batch + h * op.y_head + s * op.y_token;
      spans(op.half, [&](size_t i, size_t n) {
        const Lanes c = take(cos + i, n), x1 = take(x + i, n), x2 = take(x + op.half + i, n);
        const Lanes d = op.inverse ? splat(0.0f) - take(sin + i, n) : take(sin + i, n);
        give(y + i, x1 * c - x2 * d, n);
        give(y + op.half + i, x2 * c + x1 * d, n);
      });
      for (size_t i = 2 * op.half; i < op.dims; ++i) y[i] = x[i];
    }
  }
}

}  // namespace

namespace {

// call.template operator()<T, Form>() of the op's type and form.
template <typename Call>
SF_INLINE void by_form(const RmsNorm& op, Call call) {
  if (op.type == Type::kF32)
    op.centred ? call.template operator()<float, Centred<float>>() : call.template operator()<float, Plain<float>>();
  else
    op.centred ? call.template operator()<uint16_t, Centred<uint16_t>>()
               : call.template operator()<uint16_t, Plain<uint16_t>>();
}

}  // namespace

void rms_norm(const RmsNorm& op, void* y, float* rstd, size_t begin, size_t end) {
  by_form(op, [&]<typename T, typename Form>() { norm_rows<T, Form>(op, static_cast<T*>(y), rstd, begin, end); });
}

void rms_norm_dx(const RmsNorm& op, const void* g, const float* rstd, void* dx, size_t begin, size_t end) {
  by_form(op, [&]<typename T, typename Form>() {
    norm_gradient_rows<T, Form>(op, static_cast<const T*>(g), rstd, static_cast<T*>(dx), begin, end);
  });
}

void rms_norm_dweight(const RmsNorm& op, const void* g, const float* rstd, float* dweight, size_t begin, size_t end) {
  by_form(op, [&]<typename T, typename Form>() {
    norm_gradient_weight<T, Form>(op, static_cast<const T*>(g), rstd, dweight, begin, end);
  });
}

void swiglu(Type type, const void* gate, const void* up, void* y, size_t begin, size_t end) {
  if (type == Type::kF32) {
    gated(static_cast<const float*>(gate), static_cast<const float*>(up), static_cast<float*>(y), begin, end);
  } else {
    gated(static_cast<const uint16_t*>(gate), static_cast<const uint16_t*>(up), static_cast<uint16_t*>(y), begin, end);
  }
}

void swiglu_backward(Type type, const void* gate, const void* up, const void* g, void* dgate, void* dup, size_t begin,
                     size_t end) {
  if (type == Type::kF32) {
    gated_gradient(static_cast<const float*>(gate), static_cast<const float*>(up), static_cast<const float*>(g),
                   static_cast<float*>(dgate), static_cast<float*>(dup), begin, end);
  } else {
    gated_gradient(static_cast<const uint16_t*>(gate), static_cast<const uint16_t*>(up),
                   static_cast<const uint16_t*>(g), static_cast<uint16_t*>(dgate), static_cast<uint16_t*>(dup), begin,
                   end);
  }
}

void rotary(const Rotary& op, size_t begin, size_t end) {
  if (op.type == Type::kF32)
    turn<float>(op, begin, end);
  else
    turn<uint16_t>(op, begin, end);
}

}  // namespace sf::kernels::SF_ISA
