// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/cuda.h"

extern "C" int sf_cuda_nccl_version(int* version) {
  *version = 0;
  return 0;
}

extern "C" const sf_collectives* sf_cuda_collectives() {
  return nullptr;
}
