// SPDX-License-Identifier: Apache-2.0
#include "functions.h"
#include "lanes.h"
#include "sf_kernels/delta.h"
#include "spans.h"

namespace sf::kernels::SF_ISA {

namespace {

SF_INLINE Lanes sigmoid(Lanes x) {
  return splat(1.0f) / (splat(1.0f) + exp(min(splat(88.0f), splat(0.0f) - x)));
}

// Taps from the oldest on; those before the row's first token see zeros.
template <typename T>
SF_INLINE Lanes convolved(const Convolution& op, const T* row, size_t t, size_t channel, size_t n) {
  Lanes total = splat(0.0f);
  for (size_t j = 0; j < op.taps; ++j) {
    const size_t back = (op.taps - 1 - j) * op.dilation;
    if (t < back) continue;
    const T* x = row + (t - back) * op.x_token + channel;
    total = fma(take(op.weight + j * op.channels + channel, n), take(x, n), total);
  }
  return total;
}

template <typename T>
void forward(const Convolution& op, T* y, size_t begin, size_t end) {
  for (size_t token = begin; token < end; ++token) {
    const T* row = static_cast<const T*>(op.x) + token / op.length * op.x_batch;
    spans(op.channels, [&](size_t c, size_t n) {
      const Lanes z = convolved(op, row, token % op.length, c, n);
      give(y + token * op.channels + c, z * sigmoid(z), n);
    });
  }
}

// slope: [length, kConvolutionBlock], the gradient before the activation.
template <typename T>
void slopes(const Convolution& op, const T* row, const T* g, size_t channel, size_t count, float* slope) {
  for (size_t t = 0; t < op.length; ++t) {
    spans(count, [&](size_t i, size_t n) {
      const Lanes z = convolved(op, row, t, channel + i, n), s = sigmoid(z);
      const Lanes upstream = take(g + t * op.channels + channel + i, n);
      store(slope + t * kConvolutionBlock + i, upstream * (s * fma(z, splat(1.0f) - s, splat(1.0f))));
    });
  }
}

template <typename T>
void block_backward(const Convolution& op, const T* g, T* dx, float* dweight, float* slope, size_t channel) {
  const size_t count = op.channels - channel < kConvolutionBlock ? op.channels - channel : kConvolutionBlock;
  for (size_t j = 0; j < op.taps; ++j)
    spans(count, [&](size_t i, size_t n) { give(dweight + j * op.channels + channel + i, splat(0.0f), n); });
  for (size_t b = 0; b < op.batch; ++b) {
    const T* row = static_cast<const T*>(op.x) + b * op.x_batch;
    const size_t place = b * op.length * op.channels;
    slopes(op, row, g + place, channel, count, slope);
    spans(count, [&](size_t i, size_t n) {
      for (size_t t = 0; t < op.length; ++t) {
        Lanes total = splat(0.0f);
        for (size_t j = 0; j < op.taps; ++j) {
          const size_t later = t + (op.taps - 1 - j) * op.dilation;
          if (later >= op.length) continue;
          total = fma(take(op.weight + j * op.channels + channel + i, n), load(slope + later * kConvolutionBlock + i),
                      total);
        }
        give(dx + place + t * op.channels + channel + i, total, n);
      }
      for (size_t j = 0; j < op.taps; ++j) {
        float* to = dweight + j * op.channels + channel + i;
        Lanes total = take(to, n);
        for (size_t t = (op.taps - 1 - j) * op.dilation; t < op.length; ++t) {
          const T* x = row + (t - (op.taps - 1 - j) * op.dilation) * op.x_token + channel + i;
          total = fma(load(slope + t * kConvolutionBlock + i), take(x, n), total);
        }
        give(to, total, n);
      }
    });
  }
}

}  // namespace

void conv_silu(const Convolution& op, void* y, size_t begin, size_t end) {
  if (op.type == Type::kF32)
    forward(op, static_cast<float*>(y), begin, end);
  else
    forward(op, static_cast<uint16_t*>(y), begin, end);
}

void conv_silu_backward(const Convolution& op, const void* g, void* dx, float* dweight, float* scratch, size_t begin,
                        size_t end) {
  for (size_t block = begin; block < end; ++block) {
    const size_t channel = block * kConvolutionBlock;
    if (op.type == Type::kF32)
      block_backward(op, static_cast<const float*>(g), static_cast<float*>(dx), dweight, scratch, channel);
    else
      block_backward(op, static_cast<const uint16_t*>(g), static_cast<uint16_t*>(dx), dweight, scratch, channel);
  }
}

}  // namespace sf::kernels::SF_ISA
