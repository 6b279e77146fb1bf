// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sf_kernels/cuda.h"

namespace {

class Device : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    ASSERT_EQ(sf_cuda_device_count(&count), 0);
    if (count == 0) GTEST_SKIP() << "not run: no GPU on this machine";
  }
  static float* upload(const std::vector<float>& host) {
    void* device = nullptr;
    EXPECT_EQ(cudaMalloc(&device, host.size() * 4), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(device, host.data(), host.size() * 4, cudaMemcpyHostToDevice), cudaSuccess);
    return static_cast<float*>(device);
  }
  static std::vector<float> download(const float* device, size_t count) {
    std::vector<float> host(count);
    EXPECT_EQ(cudaMemcpy(host.data(), device, count * 4, cudaMemcpyDeviceToHost), cudaSuccess);
    return host;
  }
};

std::vector<float> ramp(size_t count, float from, float step) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = from + step * static_cast<float>(i % 1013);
  return values;
}

TEST(CudaLibrary, AnswersWithoutAGpu) {
  int count = -1, nccl = -1;
  EXPECT_EQ(sf_cuda_device_count(&count), 0);
  EXPECT_GE(count, 0);
  EXPECT_EQ(sf_cuda_nccl_version(&nccl), 0);
  EXPECT_STREQ(sf_cuda_error_text(0), "no error");
}

TEST_F(Device, FoldAddsTheSameBitsAsTheHost) {
  std::vector<float> acc = ramp(100003, -1.5f, 1e-3f), gradient = ramp(100003, 0.1f, 7e-4f);
  float *a = upload(acc), *g = upload(gradient);
  ASSERT_EQ(sf_cuda_fold_add(a, g, 100003, nullptr), 0);
  std::vector<float> found = download(a, acc.size());
  for (size_t i = 0; i < acc.size(); ++i) ASSERT_EQ(found[i], acc[i] + gradient[i]) << i;
}

TEST_F(Device, FirstAdamWStepMovesByTheLearningRate) {
  std::vector<float> zero(1000, 0.0f), gradient = ramp(1000, 0.5f, 1e-3f);
  float *p = upload(zero), *g = upload(gradient), *m = upload(zero), *v = upload(zero);
  ASSERT_EQ(sf_cuda_adamw_step(p, g, m, v, 1000, 0.01f, 0.9f, 0.999f, 1e-8f, 0.0f, 1, 1.0f, nullptr), 0);
  for (float value : download(p, 1000)) ASSERT_NEAR(value, -0.01f, 1e-7f);  // lr * g / (|g| + eps)
}

}  // namespace
