// SPDX-License-Identifier: Apache-2.0
// Which calls the NCCL group makes, on a fake that carries them out. What NCCL itself does is shown on a device only.
#include "comm/nccl.h"

#include <cmath>
#include <thread>

#include "base/error.h"
#include "fake_nccl.h"
#include "ranks.h"

namespace sf::comm {
namespace {

Call named(std::string_view tag, int64_t ms = 20'000) {
  return {tag, Deadline::after_ms(ms)};
}

// The calls of each rank that `body` leads to.
std::vector<std::vector<std::string>> recorded(int world, const NcclOptions& options,
                                               const std::function<void(Group&)>& body) {
  std::vector<std::vector<std::string>> all(static_cast<size_t>(world));
  run_threads(world, [&](Group& threads) {
    auto me = static_cast<size_t>(threads.rank());
    auto group = make_nccl(fake::table(), threads.split(0, named("control")), options);
    fake::calls.clear();
    body(*group);
    all[me] = fake::calls;
    threads.barrier(named("end"));
  });
  return all;
}

TEST(Nccl, PartsOfEqualRanksAreOneGather) {
  auto calls = recorded(3, {}, [](Group& group) {
    std::vector<size_t> big{64, 64, 64}, small{4, 4, 4};
    auto mark = static_cast<std::byte>(group.rank() + 1);
    std::vector<std::byte> mine(64, mark), tail(4, mark), into(192), into_small(12);
    std::vector<GatherPart> parts{{mine, big, into}, {tail, small, into_small}};
    group.all_gather(parts, named("gather"));
    for (size_t i = 0; i < into.size(); ++i) EXPECT_EQ(into[i], static_cast<std::byte>(i / 64 + 1));
    for (size_t i = 0; i < into_small.size(); ++i) EXPECT_EQ(into_small[i], static_cast<std::byte>(i / 4 + 1));
  });
  for (const auto& one : calls) EXPECT_EQ(one, (std::vector<std::string>{"start", "all_gather 68", "end"}));
}

// The fake refuses memory that is not its device's: every payload of a host passed through a window of the staging.
TEST(Nccl, PayloadsOfTheHostPassTheDeviceInWindows) {
  for (int world : {1, 2, 3, 4, 7}) {
    for (Fold fold : {Fold::kExact, Fold::kFast}) {
      NcclOptions options{.fold = fold, .piece_bytes = 64};
      recorded(world, options, [&](Group& group) {
        auto ranks = static_cast<size_t>(world), me = static_cast<size_t>(group.rank());
        fake::largest = 0;
        std::vector<size_t> sizes(ranks, 150), offsets;
        std::vector<std::byte> mine(150, static_cast<std::byte>(me + 1)), into(150 * ranks);
        group.all_gather(mine, sizes, into, named("gather"));
        for (size_t i = 0; i < into.size(); ++i) ASSERT_EQ(into[i], static_cast<std::byte>(i / 150 + 1));
        EXPECT_LE(fake::largest, ranks * 64);
        for (size_t r = 0; r <= ranks; ++r) offsets.push_back(r * 37);
        std::vector<float> acc(37, 0.5f);
        size_t longest = 0;
        auto give = [&](size_t from, std::span<float> to) {
          longest = std::max(longest, to.size());
          for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(from + i + me);
        };
        group.reduce_given(give, true, offsets, acc, named("fold"));
        float others = static_cast<float>(ranks * (ranks - 1) / 2);  // small integers: exact in any order
        for (size_t i = 0; i < acc.size(); ++i)
          ASSERT_EQ(acc[i], 0.5f + static_cast<float>((me * 37 + i) * ranks) + others) << i;
        EXPECT_LE(longest * sizeof(float), 64u);
        EXPECT_LE(fake::largest, (2 * ranks + 1) * 64);
      });
    }
  }
}

TEST(Nccl, EveryThreadThatCallsUsesTheRanksDevice) {
  recorded(2, {.device = 5}, [](Group& group) {
    std::thread other([&] {
      std::vector<size_t> sizes{4, 4};
      std::vector<std::byte> mine(4), into(8);
      group.all_gather(mine, sizes, into, named("gather"));
      EXPECT_EQ(fake::device, 5);
    });
    other.join();
  });
}

TEST(Nccl, UnevenPiecesAreSentAndReceivedInOneLaunch) {
  auto calls = recorded(3, {}, [](Group& group) {
    std::vector<size_t> sizes{8, 0, 4};
    std::vector<std::byte> mine(sizes[static_cast<size_t>(group.rank())]), into(12);
    group.all_gather(mine, sizes, into, named("gather"));
  });
  EXPECT_EQ(calls[0], (std::vector<std::string>{"start", "send 8 1", "send 8 2", "receive 4 2", "end"}));
  EXPECT_EQ(calls[1], (std::vector<std::string>{"start", "receive 8 0", "receive 4 2", "end"}));
  EXPECT_EQ(calls[2], (std::vector<std::string>{"start", "send 4 0", "receive 8 0", "send 4 1", "end"}));
}

TEST(Nccl, AnExactFoldIsOneLaunchAndAdditionsInRankOrder) {
  for (int world : {1, 2, 3, 4, 7}) {
    auto calls = recorded(world, {}, [](Group& group) {
      auto ranks = static_cast<size_t>(group.world());
      std::vector<size_t> offsets;
      for (size_t r = 0; r <= ranks; ++r) offsets.push_back(r * 5);
      std::vector<float> gradient(offsets.back(), 1.0f), acc(5);
      bool present = group.rank() != 1;
      group.reduce_fold(present ? gradient : std::vector<float>{}, present, offsets, acc, named("fold"));
    });
    for (int rank = 0; rank < world; ++rank) {
      std::vector<std::string> wanted{"start"};
      for (int peer = 0; peer < world; ++peer) {
        if (peer == rank) continue;
        if (rank != 1) wanted.push_back(fmt::format("send 20 {}", peer));
        if (peer != 1) wanted.push_back(fmt::format("receive 20 {}", peer));
      }
      wanted.push_back("end");
      for (int present = 0; present < world - (world > 1 ? 1 : 0); ++present) wanted.push_back("fold_add 5");
      EXPECT_EQ(calls[static_cast<size_t>(rank)], wanted) << world << " " << rank;
    }
  }
}

TEST(Nccl, AFastFoldIsNcclsReduceScatter) {
  auto calls = recorded(4, {.fold = Fold::kFast}, [](Group& group) {
    std::vector<size_t> offsets{0, 6, 12, 18, 24};
    std::vector<float> gradient(24, static_cast<float>(group.rank() + 1)), acc(6, 0.5f);
    bool present = group.rank() != 2;
    group.reduce_fold(present ? gradient : std::vector<float>{}, present, offsets, acc, named("fold"));
    for (float value : acc) EXPECT_EQ(value, 0.5f + 1 + 2 + 4);
  });
  for (const auto& one : calls) EXPECT_EQ(one, (std::vector<std::string>{"reduce_scatter 6", "fold_add 6"}));
}

TEST(Nccl, AFoldPassesInPiecesOfBoundedMemory) {
  auto calls = recorded(2, {.piece_bytes = 16}, [](Group& group) {
    std::vector<size_t> offsets{0, 9, 10};
    std::vector<float> gradient(10, 1.0f), acc(group.rank() == 0 ? 9 : 1);
    group.reduce_fold(gradient, true, offsets, acc, named("fold"));
    for (float value : acc) EXPECT_EQ(value, 2.0f);
  });
  EXPECT_EQ(std::count(calls[0].begin(), calls[0].end(), "start"), 3);
  EXPECT_EQ(std::count(calls[0].begin(), calls[0].end(), "receive 16 1"), 2);
}

TEST(Nccl, AStuckCallEndsAtItsDeadlineAndAbortsBothCommunicators) {
  std::string why;
  int aborts = 0;
  {
    auto threads = make_threads(1);
    auto group = make_nccl(fake::table(), std::move(threads[0]), {});
    fake::calls.clear();
    fake::stuck = true;
    std::vector<float> gradient(4), acc(4);
    std::vector<size_t> offsets{0, 4};
    try {
      group->reduce_fold(gradient, true, offsets, acc, named("fold midlayer", 30));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kUnavailable);
      why = error.what();
    }
    group.reset();
    aborts = static_cast<int>(std::count(fake::calls.begin(), fake::calls.end(), "abort"));
    fake::stuck = false;
  }
  EXPECT_NE(why.find("rank 0 gave up waiting in fold midlayer: deadline passed"), std::string::npos) << why;
  EXPECT_EQ(aborts, 2);
}

TEST(Nccl, OtherSizesAreRefusedBeforeAnythingIsLaunched) {
  try {
    recorded(2, {}, [](Group& group) {
      std::vector<size_t> offsets{0, 3, group.rank() == 0 ? 6u : 7u};
      std::vector<float> gradient(offsets.back()),
          acc(offsets[static_cast<size_t>(group.rank()) + 1] - offsets[static_cast<size_t>(group.rank())]);
      group.reduce_fold(gradient, true, offsets, acc, named("fold"));
    });
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kSoftware);
  }
}

TEST(Nccl, NothingIsLeftBehind) {
  recorded(3, {}, [](Group& group) {
    std::vector<size_t> offsets{0, 1, 2, 3};
    std::vector<float> gradient(3), acc(1);
    group.reduce_fold(gradient, true, offsets, acc, named("fold"));
  });
  EXPECT_EQ(fake::post().communicators, 0);
  EXPECT_EQ(fake::post().memories.size(), 0u);
}

}  // namespace
}  // namespace sf::comm
