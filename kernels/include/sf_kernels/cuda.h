// SPDX-License-Identifier: Apache-2.0
// The C border of libshardforge-cuda. Device pointers, counts in elements; every call returns 0 or a cudaError_t value,
// which sf_cuda_error_text names. No exception crosses it.
#pragma once
#include <cstdint>

extern "C" {
int sf_cuda_device_count(int* count);  // 0 devices is not an error
const char* sf_cuda_error_text(int error);
int sf_cuda_nccl_version(int* version);  // 0: built without NCCL
struct sf_collectives;
const struct sf_collectives* sf_cuda_collectives();  // sf_kernels/collectives.h; null: built without NCCL

// acc[i] += g[i] on the given stream: one step of the fold, the same bits as the CPU's.
int sf_cuda_fold_add(float* acc, const float* gradient, int64_t count, void* stream);
// PyTorch's AdamW with decoupled decay; gradients are multiplied by `scale` (the clip coefficient) first.
int sf_cuda_adamw_step(float* master, const float* gradient, float* exp_avg, float* exp_avg_sq, int64_t count, float lr,
                       float beta1, float beta2, float eps, float weight_decay, int64_t step, float scale,
                       void* stream);
}
