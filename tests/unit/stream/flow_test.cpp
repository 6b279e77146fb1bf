// SPDX-License-Identifier: Apache-2.0
// Flow control and the roster: pure state machines, checked by random walks against what they promise.
#include "stream/flow.h"

#include "stream/roster.h"
#include "stream/row_cache.h"
#include "support.h"

namespace sf::stream {
namespace {

Ask want(std::vector<uint64_t> positions) {
  return {{}, std::move(positions), {}};
}
Ask now(std::vector<uint64_t> positions) {
  return {std::move(positions), {}, {}};
}
Ask landed(std::vector<uint64_t> positions) {
  return {{}, {}, std::move(positions)};
}

TEST(FlowControl, TheLowestPositionOfAnyRankComesFirst) {
  Flow flow;
  flow.join("a", 1000);
  flow.join("b", 1000);
  flow.ask("a", want({8, 6}));
  flow.ask("b", want({7}));
  for (uint64_t expected : {6, 7, 8}) {
    ASSERT_EQ(flow.next(), expected);
    flow.serve(expected, 10);
  }
  EXPECT_EQ(flow.next(), std::nullopt);
}

TEST(FlowControl, SeveralAreTakenTogetherAsFarAsTheyWillFindRoom) {
  Flow flow;
  flow.join("a", 30);
  flow.join("b", 10);
  flow.ask("a", {.want = {1, 3, 5, 7, 9}});
  flow.ask("b", {.want = {2, 4}});
  EXPECT_EQ(flow.next(8), (std::vector<uint64_t>{1})) << "the first shows how large one is";
  flow.serve(1, 10);
  EXPECT_EQ(flow.next(8), (std::vector<uint64_t>{2, 3, 5})) << "the credit of a is two more, that of b one";
  EXPECT_EQ(flow.next(2), (std::vector<uint64_t>{2, 3}));
  flow.ask("b", {.now = {4}});
  EXPECT_EQ(flow.next(8), (std::vector<uint64_t>{2, 3, 4, 5})) << "what is waited for passes";
  for (uint64_t position : {2, 3, 4, 5}) EXPECT_EQ(flow.serve(position, 10).size(), 1u) << position;
}

TEST(FlowControl, ARankOutOfCreditWaitsUntilSomethingLands) {
  Flow flow;
  flow.join("a", 100);
  flow.ask("a", want({1, 2, 3}));
  flow.serve(*flow.next(), 60);
  EXPECT_EQ(flow.next(), std::nullopt);
  flow.ask("a", landed({1}));
  EXPECT_EQ(flow.next(), 2u);
}

TEST(FlowControl, ASlowRankDoesNotHoldUpAnother) {
  Flow flow;
  flow.join("slow", 100);
  flow.join("quick", 100);
  flow.ask("slow", want({1, 2}));
  flow.ask("quick", want({3}));
  flow.serve(1, 90);
  EXPECT_EQ(flow.next(), 3u);
}

TEST(FlowControl, WhatACallerWaitsForPassesWhateverTheCredit) {
  Flow flow;
  flow.join("a", 10);
  flow.ask("a", want({5, 6}));
  flow.serve(5, 1000);
  flow.ask("a", now({6}));
  EXPECT_EQ(flow.next(), 6u);
  EXPECT_EQ(flow.serve(6, 1000), std::vector<Flow::Peer>{"a"});
}

TEST(FlowControl, TwoRanksThatAskForOnePositionGetItFromOneComputation) {
  Flow flow;
  flow.join("a", 100);
  flow.join("b", 100);
  flow.ask("a", want({5}));
  flow.ask("b", now({5}));
  EXPECT_EQ(flow.serve(5, 10), (std::vector<Flow::Peer>{"a", "b"}));
}

TEST(FlowControl, ARankThatLeftIsForgottenWithAllItAsked) {
  Flow flow;
  flow.join("a", 100);
  flow.ask("a", want({5}));
  flow.drop("a");
  EXPECT_EQ(flow.next(), std::nullopt);
  EXPECT_TRUE(flow.serve(5, 10).empty());
}

TEST(FlowControl, ARankCannotQueueWithoutEnd) {
  Flow flow;
  flow.join("a", 100);
  uint64_t position = 0;
  Exit code = Exit::kOk;
  for (int i = 0; i < 40 && code == Exit::kOk; ++i) {
    std::vector<uint64_t> positions;
    for (size_t k = 0; k < kMaxAskPositions; ++k) positions.push_back(position++);
    code = code_of([&] { flow.ask("a", want(positions)); });
  }
  EXPECT_EQ(code, Exit::kData);
  EXPECT_LE(flow.queued("a"), kMaxQueued + kMaxAskPositions);
}

// A random walk of asks, repeats, takes, rejoins and computations. At every step: bytes in flight keep their bound;
// when nothing more can be computed, whoever still asks holds bytes he has not landed (so no state is a deadlock).
TEST(FlowControl, ARandomWalkKeepsItsBoundsAndServesEveryPositionOnce) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed, "walk");
    Flow flow;
    constexpr size_t kCredit = 300, kLargest = 100;
    std::map<Flow::Peer, std::set<uint64_t>> holding, asked, done;
    for (const char* peer : {"a", "b", "c"}) flow.join(peer, kCredit);
    for (uint64_t step = 0; step < 400; ++step) {
      Flow::Peer peer(1, static_cast<char>('a' + rng.below(3, step, 1)));
      uint64_t position = rng.below(50, step, 2) * 3 + static_cast<uint64_t>(peer[0] - 'a');
      switch (rng.below(4, step, 3)) {
        case 0:
          if (done[peer].contains(position)) break;
          flow.ask(peer, want({position, position}));
          asked[peer].insert(position);
          break;
        case 1:
          if (holding[peer].empty()) break;
          flow.ask(peer, landed({*holding[peer].begin()}));
          holding[peer].erase(holding[peer].begin());
          break;
        default:
          if (auto next = flow.next()) {
            for (const Flow::Peer& receiver : flow.serve(*next, 1 + rng.below(kLargest, step, 4))) {
              ASSERT_TRUE(done[receiver].insert(*next).second) << "served twice";
              holding[receiver].insert(*next);
            }
          }
      }
      for (const auto& [id, positions] : holding) ASSERT_LE(flow.in_flight(id), kCredit + kLargest);
      if (!flow.next()) {
        for (const auto& [id, positions] : asked) {
          ASSERT_TRUE(flow.queued(id) == 0 || flow.in_flight(id) > 0) << "asked, nothing in flight, and not served";
        }
      }
    }
    for (int i = 0; i < 1000; ++i) {  // drain: everything asked is served in the end
      while (auto next = flow.next()) {
        for (const Flow::Peer& receiver : flow.serve(*next, 50))
          done[receiver].insert(*next), holding[receiver].insert(*next);
      }
      for (auto& [id, positions] : holding) {
        flow.ask(id, landed({positions.begin(), positions.end()}));
        positions.clear();
      }
      if (flow.queued() == 0) break;
    }
    for (const auto& [id, positions] : asked) {
      for (uint64_t position : positions)
        EXPECT_TRUE(done[id].contains(position)) << seed << " " << id << " " << position;
    }
  }
}

Hello hello(int64_t rank, int64_t world) {
  Hello hello;
  hello.wire = 1;
  hello.rank = rank;
  hello.world = world;
  hello.name = fmt::format("host:{}", 100 + rank);
  return hello;
}

TEST(RosterOf, EndsWhenEveryRankOfTheWorldSaidBye) {
  Roster roster;
  std::vector<std::string> replaced;
  roster.join("a", hello(0, 2), 0, replaced);
  roster.leave("a", Roster::State::kBye, 1);
  EXPECT_FALSE(roster.all_bye()) << "rank 1 has not even joined";
  roster.join("b", hello(1, 2), 2, replaced);
  roster.leave("b", Roster::State::kBye, 3);
  EXPECT_TRUE(roster.all_bye());
}

TEST(RosterOf, ARunOfAnotherSizeMayFollowOnlyWhenAllOfTheFirstLeft) {
  Roster roster;
  std::vector<std::string> replaced;
  roster.join("a", hello(0, 2), 0, replaced);
  roster.join("b", hello(1, 2), 0, replaced);
  roster.leave("a", Roster::State::kSilent, 1);
  EXPECT_TRUE(roster.join("c", hello(0, 1), 2, replaced)) << "rank 1 of the first run lives";
  roster.leave("b", Roster::State::kSilent, 3);
  EXPECT_EQ(roster.join("c", hello(0, 1), 4, replaced), std::nullopt);
  EXPECT_EQ(replaced, (std::vector<std::string>{"a", "b"}));
  roster.leave("c", Roster::State::kBye, 5);
  EXPECT_TRUE(roster.all_bye());
}

TEST(RosterOf, HostileHellosAreRefused) {
  Json good = hello(0, 2).to_json();
  for (auto [key, value] : std::vector<std::pair<const char*, Json>>{{"rank", Json(2)},
                                                                     {"rank", Json(-1)},
                                                                     {"world", Json(0)},
                                                                     {"world", Json(int64_t{1} << 40)},
                                                                     {"credit_bytes", Json(-5)},
                                                                     {"name", Json(std::string(300, 'n'))},
                                                                     {"token", Json(7)}}) {
    Json json = good;
    json.set(key, value);
    EXPECT_EQ(code_of([&] { Hello::from_json(json); }), Exit::kData) << key;
  }
}

TEST(RowCacheOf, KeepsTheRowsUsedLastWithinItsBytes) {
  Contract contract = test_contract(100);
  contract.rows = 100;
  auto sample = [&](uint64_t row) {
    auto made = std::make_shared<Sample>();
    made->row = row;
    made->tensors.push_back({"a", HostTensor(Dtype::kU8, {1000})});
    return made;
  };
  RowCache cache(3 * 1256);
  for (uint64_t row : {1, 2, 3}) cache.put(sample(row));
  EXPECT_TRUE(cache.find(1));
  cache.put(sample(4));  // 2 was used longest ago
  EXPECT_FALSE(cache.find(2));
  EXPECT_TRUE(cache.find(1) && cache.find(3) && cache.find(4));
  EXPECT_LE(cache.bytes(), 3u * 1256);
  auto huge = std::make_shared<Sample>();
  huge->row = 9;
  huge->tensors.push_back({"a", HostTensor(Dtype::kU8, {100000})});
  cache.put(huge);
  EXPECT_FALSE(cache.find(9));
  EXPECT_TRUE(cache.find(1));
}

}  // namespace
}  // namespace sf::stream
