// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "ops/parallel.h"
#include "tensor/threads.h"

namespace sf::ops {
namespace {

class Parallel : public testing::Test {
 protected:
  void SetUp() override { tensor::set_threads(4); }
  void TearDown() override { tensor::set_threads(before_); }
  int before_ = tensor::threads();
};

TEST_F(Parallel, EveryItemIsDoneExactlyOnce) {
  for (size_t count : {0, 1, 2, 7, 100, 1001}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::atomic<int>> done(count);
      kernels::run(parallel(), count, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) ++done[i];
      });
      for (const auto& d : done) ASSERT_EQ(d, 1);
    }
  }
}

TEST_F(Parallel, PiecesAreNoSmallerThanTheGrain) {
  std::atomic<int> pieces{0};
  kernels::run(parallel(40), 100, [&](size_t, size_t) { ++pieces; });
  EXPECT_LE(pieces, 3);
}

TEST_F(Parallel, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  auto throwing = [](size_t begin, size_t) {
    if (begin > 0) throw std::runtime_error("piece");
  };
  EXPECT_THROW(kernels::run(parallel(), 100, throwing), std::runtime_error);
  std::atomic<size_t> items{0};
  kernels::run(parallel(), 100, [&](size_t begin, size_t end) { items += end - begin; });
  EXPECT_EQ(items, 100u);
}

TEST_F(Parallel, NestedCallsRunOnTheSpot) {
  std::atomic<size_t> items{0};
  kernels::run(parallel(), 8, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      kernels::run(parallel(), 10, [&](size_t b, size_t e) { items += e - b; });
    }
  });
  EXPECT_EQ(items, 80u);
}

TEST_F(Parallel, SeveralThreadsMayCallAtOnce) {
  std::atomic<size_t> items{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      tensor::set_threads(3);
      for (int i = 0; i < 200; ++i) {
        kernels::run(parallel(), 50, [&](size_t begin, size_t end) { items += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(items, 4u * 200 * 50);
}

}  // namespace
}  // namespace sf::ops
