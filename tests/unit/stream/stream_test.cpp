// SPDX-License-Identifier: Apache-2.0
// Producer and StreamSource against each other, over real ZeroMQ on loopback.
#include <numeric>

#include "stream/frame.h"
#include "stream/socket.h"
#include "support.h"

namespace sf::stream {
namespace {

TEST(Stream, DeliversEverySampleBitEqualToTwoRanksAndEndsWithBye) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  std::vector<std::thread> ranks;
  std::vector<uint64_t> seen(40, 0);
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        auto source = StreamSource::connect(producer.handle(), quick_trainer(rank, 2));
        std::vector<uint64_t> mine;
        for (uint64_t p = static_cast<uint64_t>(rank); p < 40; p += 2) mine.push_back(p);
        source->want(mine);
        for (uint64_t p : mine) {
          Sample got = source->get(p, soon());
          EXPECT_EQ(got.position, p);
          seen[p] = digest_of(got);
        }
        StreamCounts counts = source->counts();
        EXPECT_EQ(counts.received, 20u);
        EXPECT_EQ(counts.tally.again, 0u);
        EXPECT_EQ(counts.corrupt, 0u);
        source->finish();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  producer.stop();  // without BYE this would end as kStopDeadline
  EXPECT_EQ(producer.join(), Ending::kBye);
  for (uint64_t p = 0; p < 40; ++p) EXPECT_EQ(seen[p], digest_of(test_sample(contract, p))) << p;
}

TEST(Stream, SeveralPositionsMayBeComputedTogetherOrInPart) {
  Contract contract = test_contract();
  std::vector<size_t> asked, made;
  auto compute = [&](std::span<const uint64_t> positions) {
    std::vector<Sample> samples;
    for (uint64_t position : positions.first((positions.size() + 1) / 2))
      samples.push_back(test_sample(contract, position));
    asked.push_back(positions.size());
    made.push_back(samples.size());
    return samples;
  };
  ProducerThread producer(quick_producer(contract), compute, 4);
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  std::vector<uint64_t> all(30);
  std::iota(all.begin(), all.end(), 0);
  source->want(all);
  for (uint64_t p : all) EXPECT_EQ(digest_of(source->get(p, soon())), digest_of(test_sample(contract, p))) << p;
  source->finish();
  EXPECT_EQ(producer.join(), Ending::kBye);
  EXPECT_EQ(*std::ranges::max_element(asked), 4u);
  EXPECT_EQ(std::accumulate(made.begin(), made.end(), size_t{0}), producer.counts().computed);
  EXPECT_EQ(producer.counts().computed + producer.counts().cached, 30u);
}

TEST(Stream, LaterEpochsComeFromTheCache) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  for (uint64_t p = 0; p < 30; ++p) source->get(p, soon());
  source->finish();
  EXPECT_EQ(producer.join(), Ending::kBye);
  EXPECT_EQ(producer.counts().computed, 10u);
  EXPECT_EQ(producer.counts().cached, 20u);
  EXPECT_EQ(producer.counts().voids, 3u);
}

TEST(Stream, AVoidPositionArrivesAsVoidWithItsReason) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  int voids = 0;
  for (uint64_t p = 0; p < 10; ++p) {
    Sample sample = source->get(p, soon());
    if (!sample.void_reason) continue;
    ++voids;
    EXPECT_EQ(*sample.void_reason, "no supervised token");
    EXPECT_TRUE(sample.tensors.empty());
  }
  EXPECT_EQ(voids, 1);
  source->finish();
}

TEST(Stream, SamplesOfManyChunksArriveWhole) {
  Contract contract = test_contract();
  const int64_t floats = 3 * (1 << 18) + 5;  // three chunks of 1 MiB and 20 bytes
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p, floats); });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  for (uint64_t p = 0; p < 5; ++p)
    EXPECT_EQ(digest_of(source->get(p, soon())), digest_of(test_sample(contract, p, floats)));
  source->finish();
}

TEST(Stream, ServesTheLowestPositionFirst) {
  Contract contract = test_contract(100);
  std::mutex mutex;
  std::vector<uint64_t> order;
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) {
    if (p == 50) std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others are asked meanwhile
    std::lock_guard lock(mutex);
    order.push_back(p);
    return test_sample(contract, p);
  });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  source->want(std::vector<uint64_t>{50});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  source->want(std::vector<uint64_t>{60, 9, 30, 10});
  for (uint64_t p : {60, 9, 30, 10, 50}) source->get(p, soon());
  source->finish();
  producer.join();
  EXPECT_EQ(order, (std::vector<uint64_t>{50, 9, 10, 30, 60}));
}

TEST(Stream, CreditBoundsTheBytesInFlight) {
  Contract contract = test_contract(1000);
  contract.order_seed = 3;
  auto compute = [&](uint64_t p) {
    Sample sample = test_sample(contract, p, 25000);  // 100 KB
    return sample;
  };
  ProducerThread producer(quick_producer(contract), compute);
  StreamOptions options = quick_trainer();
  options.marks.high = 1 << 20;
  auto source = StreamSource::connect(producer.handle(), options);
  std::vector<uint64_t> all(200);
  std::iota(all.begin(), all.end(), 0);
  source->want(all);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // time to overrun, were there no credit
  size_t one = test_sample(contract, 0, 25000).bytes() + 4000;
  EXPECT_LE(source->counts().peak_held, options.marks.high + one);
  EXPECT_GE(source->counts().received, 5u) << "prefetch does happen";
  for (uint64_t p : all) source->get(p, soon());
  EXPECT_LE(producer.counts().peak_in_flight, options.marks.high + 2 * one);
  source->finish();
}

TEST(Stream, APositionWaitedForPassesAFullWindow) {
  Contract contract = test_contract(1000);
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p, 25000); });
  StreamOptions options = quick_trainer();
  options.marks.high = 150000;  // one sample
  auto source = StreamSource::connect(producer.handle(), options);
  source->want(std::vector<uint64_t>{100, 101, 102});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // 100 fills the window
  EXPECT_EQ(source->get(5, soon()).position, 5u);
  EXPECT_EQ(source->get(102, soon()).position, 102u);
  source->finish();
}

TEST(Stream, AskingAgainIsIdempotent) {
  Contract contract = test_contract(100);
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  std::vector<uint64_t> positions{1, 2, 3, 4};
  for (int i = 0; i < 5; ++i) source->want(positions);
  uint64_t first = digest_of(source->get(2, soon()));
  EXPECT_EQ(digest_of(source->get(2, soon())), first);
  for (uint64_t p : {1, 3, 4}) source->get(p, soon());
  source->finish();
  producer.join();
  EXPECT_EQ(producer.counts().computed, 4u);
  EXPECT_EQ(producer.counts().sent, 5u) << "position 2 was taken and asked again; nothing else is sent twice";
}

TEST(Stream, AContractThatDiffersIsRefusedAtOnceNamingTheField) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  StreamOptions options = quick_trainer();
  options.wanted.tokenizer = "another";
  std::string message;
  EXPECT_EQ(code_of([&] { StreamSource::connect(producer.handle(), options); }, &message), Exit::kProtocol);
  EXPECT_NE(message.find("tokenizer: wanted \"another\", found \"k0\""), std::string::npos) << message;
}

TEST(Stream, EachFieldOfAContractThatDiffersIsRefusedNamingBothValues) {
  const Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  const Json promised = contract.to_json();
  for (const auto& [key, value] : promised.as_object()) {
    if (key == "order_seed") continue;  // the producer's own affair: it decides what comes when, not what it is
    Json changed = promised;
    changed.set(key, value.is_int() ? Json(value.as_int() + 1) : value.is_array() ? Json(Json::Array{"9"}) : Json("x"));
    StreamOptions options = quick_trainer();
    options.wanted = Contract::from_json(changed);
    std::string message;
    EXPECT_EQ(code_of([&] { StreamSource::connect(producer.handle(), options); }, &message), Exit::kProtocol) << key;
    const std::string both =
        fmt::format("{}: wanted {}, found {}", key, changed.at(key).dump(), promised.at(key).dump());
    EXPECT_NE(message.find(both), std::string::npos) << message << "\n" << both;
  }
}

TEST(Stream, AWrongTokenIsRefused) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  Handle handle = Handle::parse(producer.handle(), "test");
  handle.token = "guessed";
  std::string message;
  EXPECT_EQ(code_of([&] { StreamSource::connect(handle.line(), quick_trainer()); }, &message), Exit::kNoPermission)
      << message;
}

TEST(Stream, ASecondTrainerOfTheSameRankIsRefusedWhileTheFirstLives) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  auto first = StreamSource::connect(producer.handle(), quick_trainer());
  std::string message;
  EXPECT_EQ(code_of([&] { StreamSource::connect(producer.handle(), quick_trainer()); }, &message), Exit::kUnavailable);
  EXPECT_NE(message.find("rank 0 is already served to"), std::string::npos) << message;
  EXPECT_EQ(first->get(0, soon()).position, 0u);
  first->finish();
}

TEST(Stream, ARankThatLeftWithoutByeCanBeReplaced) {
  Contract contract = test_contract();
  ProducerOptions options = quick_producer(contract);
  options.rejoin_s = 5;
  ProducerThread producer(options, [&](uint64_t p) { return test_sample(contract, p); });
  { auto first = StreamSource::connect(producer.handle(), quick_trainer()); }
  auto second = StreamSource::connect(producer.handle(), quick_trainer(0, 1));
  EXPECT_EQ(second->get(3, soon()).position, 3u);
  second->finish();
  EXPECT_EQ(producer.join(), Ending::kBye);
}

TEST(Stream, AnErrorOfTheCallbackReachesTheTrainerWithItsWords) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) -> Sample {
    if (p == 2) fail(Exit::kData, "row 9 is broken");
    return test_sample(contract, p);
  });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  source->get(0, soon());
  std::string message;
  EXPECT_EQ(code_of([&] { source->get(2, soon()); }, &message), Exit::kUnavailable);
  EXPECT_NE(message.find("row 9 is broken"), std::string::npos) << message;
  source->finish();
  producer.join();
  EXPECT_EQ(producer.error(), "row 9 is broken");
}

TEST(Stream, ToldToStopItServesWhatIsAskedUntilBye) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  source->get(0, soon());
  producer.stop();
  for (int i = 0; i < 200 && !source->producer_stopping(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(source->producer_stopping());
  EXPECT_EQ(source->get(1, soon()).position, 1u);
  source->finish();
  EXPECT_EQ(producer.join(), Ending::kBye);
}

TEST(Stream, ToldToStopWithoutByeItEndsAtItsDeadlineAndSaysSo) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  producer.stop();
  EXPECT_EQ(producer.join(), Ending::kStopDeadline);
  std::string message;
  EXPECT_EQ(code_of([&] { source->get(1, soon()); }, &message), Exit::kUnavailable);
  EXPECT_NE(message.find("no BYE came"), std::string::npos) << message;
}

TEST(Stream, ToldToStopBeforeAnybodyJoinedItEndsAtOnce) {
  Contract contract = test_contract();
  ProducerOptions options = quick_producer(contract);
  options.stop_s = 1e6;
  ProducerThread producer(options, [&](uint64_t p) { return test_sample(contract, p); });
  producer.stop();
  EXPECT_EQ(producer.join(), Ending::kStoppedUnasked);
  EXPECT_EQ(exit_of(Ending::kStoppedUnasked), Exit::kAgain);
}

TEST(Stream, ASilentRankIsReportedByName) {
  Contract contract = test_contract();
  ProducerOptions options = quick_producer(contract);
  options.silent_s = 0.3;
  std::vector<std::string> lines;
  options.report = [&](const std::string& line) { lines.push_back(line); };
  Fault mute("stream.mute_trainer");
  ProducerThread producer(options, [&](uint64_t p) { return test_sample(contract, p); });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  EXPECT_EQ(producer.join(), Ending::kTrainersGone);
  bool named = false;
  for (const std::string& line : lines)
    named |= line.find("trainer rank 0 (") == 0 && line.find("silent") != std::string::npos;
  EXPECT_TRUE(named);
}

TEST(Stream, AProducerThatFallsSilentIsNamedWithTheTime) {
  Contract contract = test_contract();
  Fault mute("stream.mute_heartbeat");
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return test_sample(contract, p);
  });
  StreamOptions options = quick_trainer();
  options.silent_s = 0.3;
  auto source = StreamSource::connect(producer.handle(), options);
  std::string message;
  EXPECT_EQ(code_of([&] { source->get(1, soon()); }, &message), Exit::kUnavailable);
  EXPECT_NE(message.find("has been silent for"), std::string::npos) << message;
}

TEST(Stream, ALongComputationIsNotSilence) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    return test_sample(contract, p);
  });
  StreamOptions options = quick_trainer();
  options.silent_s = 0.3;
  auto source = StreamSource::connect(producer.handle(), options);
  EXPECT_EQ(source->get(1, soon()).position, 1u);
  source->finish();
  EXPECT_EQ(producer.join(), Ending::kBye);
}

TEST(Stream, ADeadlineSaysWhatTheProducerIsDoing) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    return test_sample(contract, p);
  });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  std::string message;
  EXPECT_EQ(code_of([&] { source->get(6, Deadline::after_ms(300)); }, &message), Exit::kUnavailable);
  EXPECT_NE(message.find("computes position 6"), std::string::npos) << message;
  source->finish();
}

TEST(Stream, DamagedChunksEndAsAProtocolErrorNamingTheChunk) {
  Contract contract = test_contract();
  Fault flip("stream.flip_byte");
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  std::string message;
  EXPECT_EQ(code_of([&] { source->get(0, soon()); }, &message), Exit::kProtocol);
  EXPECT_NE(message.find("came damaged 3 times"), std::string::npos) << message;
  EXPECT_GE(source->counts().corrupt, 3u);
  source->finish();
}

TEST(Stream, OnlyLoopbackIsServedInTheClear) {
  for (const char* address : {"tcp://127.0.0.1:*", "tcp://[::1]:9", "tcp://localhost:*"})
    EXPECT_TRUE(is_loopback(address));
  for (const char* address : {"tcp://0.0.0.0:*", "tcp://127.example.org:*", "tcp://*:*", "tcp://10.0.0.1:1"})
    EXPECT_FALSE(is_loopback(address)) << address;
}

}  // namespace
}  // namespace sf::stream
