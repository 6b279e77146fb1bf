// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>

#include "sf_kernels/cuda.h"

extern "C" int sf_cuda_nccl_version(int* version) {
  return static_cast<int>(ncclGetVersion(version));
}
