// SPDX-License-Identifier: Apache-2.0
// Which memory of host tensors is handed out again, and how much of it is kept.
#include "base/host_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"

namespace sf {
namespace {

constexpr int64_t kMiB = 1 << 20;

HostTensor bytes_of(HostPool& pool, int64_t count) {
  return pool.unfilled(Dtype::kU8, {count});
}

TEST(HostPool, DroppedMemoryIsHandedOutAgainForWhatIsALittleSmaller) {
  HostPool pool(8 * kMiB);
  const std::byte* first = bytes_of(pool, 4 * kMiB).data();
  EXPECT_EQ(pool.kept(), 4u * kMiB);
  HostTensor second = pool.unfilled(Dtype::kBF16, {2, kMiB - 64});
  EXPECT_EQ(second.data(), first);
  EXPECT_EQ(second.bytes(), 4u * kMiB - 256u);
  EXPECT_EQ(pool.kept(), 0u);
}

TEST(HostPool, ASmallTensorDoesNotTakeALargeOnesMemory) {
  HostPool pool(8 * kMiB);
  bytes_of(pool, 4 * kMiB);
  HostTensor small = bytes_of(pool, kMiB);
  EXPECT_EQ(pool.kept(), 4u * kMiB);
}

TEST(HostPool, LentAndKeptStayWithinTheLimit) {
  HostPool pool(8 * kMiB);
  std::vector<HostTensor> lent;
  for (int i = 0; i < 4; ++i) lent.push_back(bytes_of(pool, 4 * kMiB));  // the limit bounds what is kept, not callers
  lent.pop_back();
  EXPECT_EQ(pool.kept(), 0u);
  lent.clear();
  EXPECT_EQ(pool.kept(), 8u * kMiB);
  HostTensor other = bytes_of(pool, 2 * kMiB);
  EXPECT_EQ(pool.kept(), 4u * kMiB);
}

TEST(HostPool, ATensorOutlivesItsPoolAndSharesItsBytes) {
  std::optional<HostPool> pool(8 * kMiB);
  HostTensor tensor = bytes_of(*pool, 4 * kMiB), copy = tensor;
  std::fill_n(tensor.data(), tensor.bytes(), std::byte{7});
  tensor = {};
  EXPECT_EQ(pool->kept(), 0u);
  pool.reset();
  EXPECT_EQ(copy.data()[4 * kMiB - 1], std::byte{7});
}

TEST(HostPool, OrdinaryTensorsAreZeroThoughAPoolKeepsMemory) {
  HostPool pool(8 * kMiB);
  HostTensor dirty = bytes_of(pool, kMiB);
  std::fill_n(dirty.data(), dirty.bytes(), std::byte{7});
  dirty = {};
  HostTensor tensor(Dtype::kU8, {kMiB});
  EXPECT_TRUE(std::all_of(tensor.data(), tensor.data() + kMiB, [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_EQ(pool.kept(), static_cast<size_t>(kMiB));
  EXPECT_THROW(pool.unfilled(Dtype::kU8, {-1}), Error);
  EXPECT_EQ(HostTensor(Dtype::kU8, {kMiB}).data()[0], std::byte{0});  // the refused one lent nothing
  EXPECT_EQ(pool.kept(), static_cast<size_t>(kMiB));
}

TEST(HostPool, ThreadsTakeAndDropAtOnce) {
  HostPool pool(8 * kMiB);
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&pool, id] {
      for (int turn = 0; turn < 200; ++turn) {
        HostTensor mine = bytes_of(pool, kMiB);
        mine.data()[turn] = static_cast<std::byte>(id);
        ASSERT_EQ(mine.data()[turn], static_cast<std::byte>(id));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool.kept(), 4u * kMiB);
  EXPECT_GE(pool.kept(), 1u * kMiB);
}

}  // namespace
}  // namespace sf
