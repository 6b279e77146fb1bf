// SPDX-License-Identifier: Apache-2.0
// One suite for every kind of group and world size: odd sizes, empty pieces, payloads larger than the exchange areas.
#include <cstring>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/rng.h"
#include "ranks.h"

namespace sf::comm {
namespace {

Call named(std::string_view tag) {
  return {tag, Deadline::after_ms(20'000)};
}

std::vector<std::byte> pattern(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 7 + static_cast<size_t>(seed) * 131) & 0xff);
  return bytes;
}

std::vector<float> gradient_of(int rank, size_t elements) {
  Rng rng(7, "gradient");
  std::vector<float> values(elements);
  for (size_t i = 0; i < elements; ++i) values[i] = rng.normal(static_cast<uint64_t>(rank), i) * 1e3f;
  return values;
}

std::vector<size_t> uneven_offsets(int world, size_t unit) {
  std::vector<size_t> offsets{0};
  for (int r = 0; r < world; ++r) offsets.push_back(offsets.back() + (r % 3 == 1 ? 0 : unit + static_cast<size_t>(r)));
  return offsets;
}

class Conformance : public ::testing::TestWithParam<Form> {};

TEST_P(Conformance, GatherPutsEveryPieceInItsPlaceBitForBit) {
  run_form(GetParam(), [](Group& group) {
    for (size_t unit : {size_t{1}, size_t{1001}, size_t{70'000}}) {
      auto world = static_cast<size_t>(group.world());
      std::vector<size_t> sizes(world), small(world, 0);
      std::vector<std::byte> wanted;
      for (size_t r = 0; r < world; ++r) {
        sizes[r] = r % 2 == 1 ? 0 : unit + r;
        auto piece = pattern(sizes[r], static_cast<int>(r));
        wanted.insert(wanted.end(), piece.begin(), piece.end());
      }
      small[world - 1] = 3;
      auto me = static_cast<size_t>(group.rank());
      auto mine = pattern(sizes[me], group.rank());
      auto tail = pattern(small[me], 9);
      std::vector<std::byte> into(wanted.size()), into_small(3);
      std::vector<GatherPart> parts{{mine, sizes, into}, {tail, small, into_small}};
      group.all_gather(parts, named("gather"));
      EXPECT_EQ(into, wanted);
      EXPECT_EQ(into_small, pattern(3, 9));
    }
  });
}

TEST_P(Conformance, GatherInPlaceKeepsTheOwnPiece) {
  run_form(GetParam(), [](Group& group) {
    auto world = static_cast<size_t>(group.world());
    std::vector<size_t> sizes(world, 5);
    std::vector<std::byte> into(5 * world);
    auto mine = std::span(into).subspan(5 * static_cast<size_t>(group.rank()), 5);
    std::memset(mine.data(), group.rank() + 1, mine.size());
    group.all_gather(mine, sizes, into, named("gather"));
    for (size_t i = 0; i < into.size(); ++i) EXPECT_EQ(into[i], static_cast<std::byte>(i / 5 + 1));
  });
}

TEST_P(Conformance, FoldAddsInRankOrderOntoTheAccumulator) {
  run_form(GetParam(), [](Group& group) {
    for (size_t unit : {size_t{0}, size_t{13}, size_t{5000}}) {
      auto offsets = uneven_offsets(group.world(), unit);
      auto me = static_cast<size_t>(group.rank());
      std::vector<float> acc(offsets[me + 1] - offsets[me], 0.25f);
      // two rounds; in the second, ranks above the first are absent
      group.reduce_fold(gradient_of(group.rank(), offsets.back()), true, offsets, acc, named("fold"));
      bool present = group.rank() == 0;
      std::vector<float> second = present ? gradient_of(99, offsets.back()) : std::vector<float>{};
      group.reduce_fold(second, present, offsets, acc, named("fold"));
      for (size_t i = 0; i < acc.size(); ++i) {
        float wanted = 0.25f;
        for (int r = 0; r < group.world(); ++r) wanted += gradient_of(r, offsets.back())[offsets[me] + i];
        wanted += gradient_of(99, offsets.back())[offsets[me] + i];
        ASSERT_EQ(std::memcmp(&acc[i], &wanted, sizeof wanted), 0) << i;
        if (unit == 5000 && i == 20) break;  // the formula is quadratic; the rest is compared by the engine's tests
      }
    }
  });
}

TEST_P(Conformance, FoldOfLargeVectorsEqualsTheSerialSum) {
  run_form(GetParam(), [](Group& group) {
    auto offsets = uneven_offsets(group.world(), 4097);
    auto me = static_cast<size_t>(group.rank());
    std::vector<float> acc(offsets[me + 1] - offsets[me], -0.0f), wanted = acc;
    group.reduce_fold(gradient_of(group.rank(), offsets.back()), true, offsets, acc, named("fold"));
    for (int r = 0; r < group.world(); ++r) {
      auto gradient = gradient_of(r, offsets.back());
      for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += gradient[offsets[me] + i];
    }
    EXPECT_TRUE(acc.empty() || std::memcmp(acc.data(), wanted.data(), acc.size() * sizeof(float)) == 0);
  });
}

TEST_P(Conformance, AGradientGivenPieceByPieceFoldsToTheSameBits) {
  run_form(GetParam(), [](Group& group) {
    auto offsets = uneven_offsets(group.world(), 40'009);  // several pieces for the largest owner
    auto me = static_cast<size_t>(group.rank());
    std::vector<float> gradient = gradient_of(group.rank(), offsets.back());
    std::vector<float> acc(offsets[me + 1] - offsets[me], 0.25f), wanted = acc;
    std::vector<int> given(gradient.size(), 0);
    bool present = group.rank() != 1;
    auto give = [&](size_t from, std::span<float> to) {
      std::copy_n(gradient.begin() + static_cast<ptrdiff_t>(from), to.size(), to.begin());
      for (size_t i = 0; i < to.size(); ++i) ++given[from + i];
    };
    group.reduce_given(give, present, offsets, acc, named("fold"));
    group.reduce_fold(present ? gradient : std::vector<float>{}, present, offsets, wanted, named("fold"));
    EXPECT_TRUE(acc.empty() || std::memcmp(acc.data(), wanted.data(), acc.size() * sizeof(float)) == 0);
    EXPECT_TRUE(std::all_of(given.begin(), given.end(), [&](int times) { return times == (present ? 1 : 0); }));
  });
}

TEST_P(Conformance, SumsOfIntegersWrapLikeIntegers) {
  run_form(GetParam(), [](Group& group) {
    std::vector<int64_t> values(1500);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i) - 700 + group.rank();
    group.all_reduce_sum(values, named("sum"));
    int64_t world = group.world();
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], (static_cast<int64_t>(i) - 700) * world + world * (world - 1) / 2);
    }
    group.all_reduce_sum({}, named("sum of nothing"));
  });
}

TEST_P(Conformance, BroadcastComesFromAnyRoot) {
  run_form(GetParam(), [](Group& group) {
    for (int root = 0; root < group.world(); ++root) {
      for (size_t size : {size_t{0}, size_t{1}, size_t{9001}}) {
        auto bytes = pattern(size, group.rank());
        group.broadcast(bytes, root, named("broadcast"));
        EXPECT_EQ(bytes, pattern(size, root));
      }
    }
  });
}

TEST_P(Conformance, AllToAllDeliversEveryPairsBytes) {
  run_form(GetParam(), [](Group& group) {
    auto size = [](int from, int to) { return static_cast<size_t>((from * 5 + to * 3) % 4) * 1777; };
    std::vector<std::vector<std::byte>> out;
    std::vector<std::span<const std::byte>> to;
    for (int r = 0; r < group.world(); ++r) out.push_back(pattern(size(group.rank(), r), group.rank() * 8 + r));
    for (const auto& bytes : out) to.emplace_back(bytes);
    auto received = group.all_to_all(to, named("exchange"));
    ASSERT_EQ(received.size(), static_cast<size_t>(group.world()));
    for (int r = 0; r < group.world(); ++r) {
      EXPECT_EQ(received[static_cast<size_t>(r)], pattern(size(r, group.rank()), r * 8 + group.rank()));
    }
  });
}

TEST_P(Conformance, ManyBarriersAndMixedCallsStayInStep) {
  run_form(GetParam(), [](Group& group) {
    int rounds = group.kind() == "gloo" ? 10 : 100;  // a round over the network wakes several threads a rank
    for (int i = 0; i < rounds; ++i) {
      group.barrier(named("barrier"));
      std::vector<int64_t> one{1};
      group.all_reduce_sum(one, named("count"));
      ASSERT_EQ(one[0], group.world());
    }
    EXPECT_EQ(group.traffic().calls, 2u * static_cast<unsigned>(rounds));
  });
}

// Rows and columns of a mesh with `shards` columns, interleaved as a replicated layout uses them.
TEST_P(Conformance, RowsAndColumnsOfAMeshTalkAmongThemselves) {
  run_form(GetParam(), [](Group& group) {
    int shards = std::max(1, group.world() / 2), me = group.rank();
    auto row = group.split(me / shards, named("split")), column = group.split(me % shards, named("split"));
    EXPECT_EQ(row->rank(), me % shards);
    EXPECT_EQ(column->rank(), me / shards);
    for (int64_t round = 0; round < 5; ++round) {
      std::vector<int64_t> in_row{me + round}, in_column{me + round}, row_wanted{0}, column_wanted{0};
      row->all_reduce_sum(in_row, named("row"));
      column->all_reduce_sum(in_column, named("column"));
      for (int peer = 0; peer < group.world(); ++peer) {
        if (peer / shards == me / shards) row_wanted[0] += peer + round;
        if (peer % shards == me % shards) column_wanted[0] += peer + round;
      }
      ASSERT_EQ(in_row, row_wanted);
      ASSERT_EQ(in_column, column_wanted);
    }
    group.barrier(named("end"));
  });
}

TEST_P(Conformance, APartCanBeSplitAgain) {
  run_form(GetParam(), [](Group& group) {
    auto half = group.split(group.rank() % 2, named("split"));
    auto quarter = half->split(half->rank() % 2, named("split"));
    std::vector<int64_t> sum{group.rank()}, wanted{0};
    quarter->all_reduce_sum(sum, named("sum"));
    for (int peer = group.rank() % 4; peer < group.world(); peer += 4) wanted[0] += peer;
    EXPECT_EQ(sum, wanted);
    group.barrier(named("end"));
  });
}

TEST_P(Conformance, AThreadAsideMakesItsOwnCallsMeanwhile) {
  run_form(GetParam(), [](Group& group) {
    auto world = static_cast<int64_t>(group.world());
    auto sums = [&](Group& ranks, std::string_view tag, int64_t times) {
      for (int64_t i = 0; i < times; ++i) {
        std::vector<int64_t> sum(1500, i + ranks.rank());  // more than an area holds
        ranks.all_reduce_sum(sum, named(tag));
        EXPECT_EQ(sum.back(), world * i + world * (world - 1) / 2);
      }
    };
    std::unique_ptr<Group> aside = group.aside(named("aside"));
    uint64_t calls = group.traffic().calls;
    std::thread other([&] { sums(*aside, "aside", 20); });
    sums(group, "step", 30);
    other.join();
    EXPECT_EQ(group.traffic().calls, calls + 30);
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, Conformance, ::testing::ValuesIn(kForms), ::testing::PrintToStringParamName());

TEST(Threads, AWorldOf128Folds) {
  run_threads(128, [](Group& group) {
    std::vector<size_t> offsets(129);
    std::iota(offsets.begin(), offsets.end(), size_t{0});
    std::vector<float> gradient(128, static_cast<float>(group.rank())), acc(1, 0.0f);
    group.reduce_fold(gradient, true, offsets, acc, named("fold"));
    EXPECT_EQ(acc[0], 127.0f * 128.0f / 2.0f);
  });
}

}  // namespace
}  // namespace sf::comm
