// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "base/error.h"
#include "tensor/compare.h"
#include "tensor/convert.h"
#include "tensor/memory.h"
#include "tensor/threads.h"

namespace sf::tensor {
namespace {

TEST(Convert, HostTensorIsSharedWithoutACopy) {
  HostTensor host(Dtype::kF32, {2, 3});
  host.as<float>()[5] = 2.5f;
  at::Tensor t;
  {
    HostTensor same = host;
    t = share(same);
  }
  EXPECT_EQ(t.const_data_ptr(), host.data());
  EXPECT_EQ(t.sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_EQ(t.const_data_ptr<float>()[5], 2.5f);
}

TEST(Convert, SharedBytesOutliveTheHostTensor) {
  at::Tensor t;
  {
    HostTensor host(Dtype::kI32, {4});
    host.as<int32_t>()[3] = 7;
    t = share(host);
  }
  EXPECT_EQ(t.const_data_ptr<int32_t>()[3], 7);
}

TEST(Convert, EveryTypeGoesThereAndBack) {
  for (Dtype type : {Dtype::kF32, Dtype::kF16, Dtype::kBF16, Dtype::kF64, Dtype::kI64, Dtype::kI32, Dtype::kI16,
                     Dtype::kI8, Dtype::kU8, Dtype::kBool}) {
    EXPECT_EQ(to_dtype(to_scalar(type)), type);
    EXPECT_EQ(at::empty({3}, to_scalar(type)).element_size(), size_of(type));
  }
  EXPECT_THROW(to_dtype(at::kComplexFloat), Error);
}

TEST(Convert, ToHostCopiesAnyStrides) {
  const at::Tensor t = at::arange(6, at::kFloat).view({2, 3}).t();
  const HostTensor host = to_host(t);
  EXPECT_EQ(host.shape(), (Shape{3, 2}));
  EXPECT_EQ(host.as<float>()[1], 3.0f);
  const HostTensor narrow = to_host(t, Dtype::kBF16);
  EXPECT_EQ(bf16_to_float(narrow.as<uint16_t>()[5]), 5.0f);
}

TEST(Convert, ViewRefusesATensorThatIsNotContiguous) {
  const at::Tensor t = at::arange(6, at::kFloat).view({2, 3});
  EXPECT_EQ(view(t).bytes(), 24u);
  EXPECT_THROW(view(t.t()), Error);
}

TEST(Compare, BitsAndPlacesOfDifferences) {
  const at::Tensor a = at::arange(6, at::kFloat).view({2, 3});
  at::Tensor b = a.clone();
  EXPECT_TRUE(bit_equal(a, b));
  EXPECT_FALSE(first_difference(a, b));
  b.mutable_data_ptr<float>()[4] = 4.5f;
  EXPECT_FALSE(bit_equal(a, b));
  EXPECT_EQ(first_difference(a, b), "[1, 1]: 4 and 4.5");
  EXPECT_EQ(first_difference(a, b.view({3, 2})), "shape [2, 3] and [3, 2]");
  EXPECT_EQ(max_abs_difference(a, b), 0.5);
}

TEST(Compare, ZeroAndMinusZeroDifferInBitsOnly) {
  const at::Tensor a = at::empty({1}, at::kFloat).zero_(), b = -a;
  EXPECT_FALSE(bit_equal(a, b));
  EXPECT_EQ(max_abs_difference(a, b), 0);
}

TEST(Compare, NanAgainstANumberIsInfinitelyFar) {
  const at::Tensor a = at::arange(2, at::kFloat);
  at::Tensor b = a.clone();
  b.mutable_data_ptr<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isinf(max_abs_difference(a, b)));
  EXPECT_EQ(max_abs_difference(b, b), 0);
}

TEST(Threads, SetAndRead) {
  const int before = threads();
  set_threads(1);
  EXPECT_EQ(threads(), 1);
  set_threads(before);
  EXPECT_THROW(set_threads(0), Error);
}

TEST(Memory, CountsWhatTensorsAskFor) {
  install_allocator();
  install_allocator();
  mark_memory();
  const uint64_t before = memory().allocated;
  at::Tensor a = at::empty({1000, 1000}, at::kFloat);
  EXPECT_EQ(memory().allocated, before + 4000000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.const_data_ptr()) % 64, 0u);
  a.reset();
  EXPECT_EQ(memory().allocated, before);
  EXPECT_GE(memory().peak, before + 4000000);
  mark_memory();
  EXPECT_EQ(memory().peak, before);
}

TEST(Memory, RepeatedWorkAsksTheSystemForNothing) {
  install_allocator();
  auto work = [] {
    const at::Tensor a = at::randn({300, 500}), b = a + a;
    return (b * a).sum().item<float>();
  };
  work();
  mark_memory();
  for (int i = 0; i < 5; ++i) work();
  EXPECT_EQ(memory().os_requests, 0u);
}

TEST(Memory, EverySizeHoldsWhatItPromises) {
  install_allocator();
  const uint64_t before = memory().allocated;
  std::vector<at::Tensor> kept;
  for (int64_t n = 1; n < 3000000; n = n + 1 + n / 7) {
    kept.push_back(at::empty({n}, at::kByte).fill_(static_cast<int>(n % 251)));
  }
  for (const at::Tensor& t : kept) {
    const uint8_t want = static_cast<uint8_t>(t.numel() % 251);
    ASSERT_EQ(t.const_data_ptr<uint8_t>()[0], want);
    ASSERT_EQ(t.const_data_ptr<uint8_t>()[t.numel() - 1], want);
  }
  kept.clear();
  EXPECT_EQ(memory().allocated, before);
}

TEST(Memory, ZerosAreZeroEvenInABlockThatWasUsedBefore) {
  install_allocator();
  for (int64_t elements : {int64_t{0}, int64_t{7}, int64_t{1} << 20}) {
    for (int turn = 0; turn < 2; ++turn) {
      at::Tensor flat = zeros(elements, at::kFloat);
      EXPECT_FALSE(flat.ne(0).any().item<bool>()) << elements;
      flat.fill_(1);
    }
  }
}

TEST(Memory, TensorsOfManySizesNeedLittleMoreThanTheyHoldAtOneTime) {
  install_allocator();
  const uint64_t before = memory().os_bytes, held = memory().allocated;
  mark_memory();
  for (int64_t n = 0; n < 40; ++n) {
    std::vector<at::Tensor> kept;
    for (int64_t i = 0; i < 10; ++i)
      kept.push_back(at::empty({(int64_t{1} << 20) + n * 300000 + i * 70000}, at::kByte));
  }
  EXPECT_LE(memory().os_bytes - before, (memory().peak - held) * 11 / 10);
}

TEST(Memory, BlocksMayBeFreedByAnotherThread) {
  install_allocator();
  const uint64_t before = memory().allocated;
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back(at::empty({i * 100 + 1}, at::kFloat));
  std::thread([moved = std::move(tensors)]() mutable { moved.clear(); }).join();
  EXPECT_EQ(memory().allocated, before);
}

}  // namespace
}  // namespace sf::tensor
