// SPDX-License-Identifier: Apache-2.0
// Element-wise kernels of the engine. Compiled with --fmad=false: only an explicit fmaf contracts, as on the CPU.
#include <cuda_runtime.h>

#include <cmath>

#include "sf_kernels/cuda.h"

namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t count) {
  int64_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 65535 ? blocks : 65535);
}

__global__ void fold_add(float* acc, const float* gradient, int64_t count) {
  int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) acc[i] += gradient[i];
}

struct AdamWStep {
  float lr, beta1, beta2, eps, weight_decay, correction1, root_correction2, scale;
};

__global__ void adamw(float* master, const float* gradient, float* exp_avg, float* exp_avg_sq, int64_t count, AdamWStep s) {
  int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    float g = gradient[i] * s.scale;
    float p = master[i] - s.lr * s.weight_decay * master[i];
    float m = fmaf(1.0f - s.beta1, g - exp_avg[i], exp_avg[i]);
    float v = fmaf((1.0f - s.beta2) * g, g, s.beta2 * exp_avg_sq[i]);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = p - (s.lr / s.correction1) * (m / (sqrtf(v) / s.root_correction2 + s.eps));
  }
}

}  // namespace

extern "C" int sf_cuda_fold_add(float* acc, const float* gradient, int64_t count, void* stream) {
  if (count == 0) return 0;
  fold_add<<<blocks_for(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(acc, gradient, count);
  return static_cast<int>(cudaGetLastError());
}

extern "C" int sf_cuda_adamw_step(float* master, const float* gradient, float* exp_avg, float* exp_avg_sq, int64_t count,
                                  float lr, float beta1, float beta2, float eps, float weight_decay, int64_t step,
                                  float scale, void* stream) {
  if (count == 0) return 0;
  AdamWStep s{lr, beta1, beta2, eps, weight_decay, static_cast<float>(1.0 - std::pow(double{beta1}, double(step))),
              static_cast<float>(std::sqrt(1.0 - std::pow(double{beta2}, double(step)))), scale};
  adamw<<<blocks_for(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(master, gradient, exp_avg, exp_avg_sq,
                                                                               count, s);
  return static_cast<int>(cudaGetLastError());
}
