// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "sf_kernels/cuda.h"

extern "C" int sf_cuda_device_count(int* count) {
  *count = 0;
  cudaError_t error = cudaGetDeviceCount(count);
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) {
    *count = 0;
    return 0;
  }
  return static_cast<int>(error);
}

extern "C" const char* sf_cuda_error_text(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }
