// SPDX-License-Identifier: Apache-2.0
// Several producers, and streams that leave the host: who is asked, who is let in.
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <zmq.hpp>

#include "base/file.h"
#include "stream/link.h"
#include "support.h"

namespace sf::stream {
namespace {

Producer::Compute rows_of(const Contract& contract, double pause_s = 0) {
  return [=](uint64_t position) {
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
    return test_sample(contract, position);
  };
}

void expect_all(StreamSource& source, const Contract& contract, uint64_t begin, uint64_t end) {
  for (uint64_t p = begin; p < end; ++p) {
    std::vector<uint64_t> ahead;
    for (uint64_t q = p; q < std::min(end, p + 8); ++q) ahead.push_back(q);
    source.want(ahead);
    EXPECT_EQ(digest_of(source.get(p, soon())), digest_of(test_sample(contract, p))) << p;
    source.trained(p + 1);
  }
}

TEST(ManyProducers, ShareTheWorkAndEndWithByeEach) {
  Contract contract = test_contract(100);
  ProducerThread a(quick_producer(contract), rows_of(contract, 0.002)),
      b(quick_producer(contract), rows_of(contract, 0.002));
  auto source = StreamSource::connect({{a.handle(), {}}, {b.handle(), {}}}, quick_trainer());
  expect_all(*source, contract, 0, 60);
  StreamCounts counts = source->counts();
  EXPECT_EQ(counts.tally.asked, 60u);
  EXPECT_EQ(counts.tally.trained + counts.tally.voids, 60u);
  EXPECT_EQ(counts.producers.size(), 2u);
  for (const Served& one : counts.producers) EXPECT_GT(one.tally.answered, 10u);
  source->finish();
  EXPECT_EQ(a.join(), Ending::kBye);
  EXPECT_EQ(b.join(), Ending::kBye);
}

TEST(ManyProducers, AQuickOneIsAskedMoreThanASlowOne) {
  Contract contract = test_contract(1000);
  // Slow by count, not by the clock: a row of its takes as long as two of the other's.
  std::atomic<int> made = 0;
  ProducerThread slow(quick_producer(contract),
                      [&](uint64_t position) {
                        for (int began = made, tries = 0; made < began + 2 && tries < 20; ++tries)
                          std::this_thread::sleep_for(std::chrono::milliseconds(5));
                        return test_sample(contract, position);
                      }),
      quick(quick_producer(contract), [&](uint64_t position) {
        ++made;
        return test_sample(contract, position);
      });
  auto source = StreamSource::connect({{slow.handle(), {}}, {quick.handle(), {}}}, quick_trainer());
  expect_all(*source, contract, 0, 80);
  auto counts = source->counts();
  EXPECT_GT(2 * counts.producers[1].tally.answered, 3 * counts.producers[0].tally.answered) << explain(counts, 1, 1);
  source->finish();
}

TEST(ManyProducers, OneThatDiesIsReplacedByTheOtherAndItsAnswersAreShownAsLost) {
  Contract contract = test_contract(100);
  auto dying = std::make_unique<ProducerThread>(quick_producer(contract), [&](uint64_t p) -> Sample {
    if (p > 6) fail(Exit::kData, "it breaks");
    return test_sample(contract, p);
  });
  ProducerThread other(quick_producer(contract), rows_of(contract, 0.001));
  auto source = StreamSource::connect({{dying->handle(), {}}, {other.handle(), {}}}, quick_trainer());
  expect_all(*source, contract, 0, 40);
  StreamCounts counts = source->counts();
  EXPECT_GT(counts.producers[0].tally.lost, 0u);
  EXPECT_NE(explain(counts, 1, 1).find(fmt::format("lost {}", counts.producers[0].tally.lost)), std::string::npos)
      << explain(counts, 1, 1);
  source->finish();
}

TEST(ManyProducers, OneThatJoinsLaterIsAskedToo) {
  TemporaryDir tmp;
  Contract contract = test_contract(100);
  ProducerThread first(quick_producer(contract), rows_of(contract, 0.002));
  StreamOptions options = quick_trainer();
  options.rejoin_s = 5;
  auto source = StreamSource::connect({{first.handle(), {}}, {"", tmp / "second.handle"}}, options);
  expect_all(*source, contract, 0, 5);
  ProducerThread second(quick_producer(contract), rows_of(contract, 0.002));
  write_handle_file(tmp / "second.handle", Handle::parse(second.handle(), "test"));
  for (int i = 0; i < 500 && source->counts().rejoined == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  expect_all(*source, contract, 5, 60);
  EXPECT_GT(source->counts().producers[1].tally.answered, 5u);
  source->finish();
  EXPECT_EQ(second.join(), Ending::kBye);
}

TEST(ManyProducers, OneThatIsToldToStopIsLeftWithByeAndTheRunGoesOn) {
  Contract contract = test_contract(200);
  ProducerOptions patient = quick_producer(contract);
  patient.stop_s = 5;
  ProducerThread stopped(patient, rows_of(contract)), other(patient, rows_of(contract));
  auto source = StreamSource::connect({{stopped.handle(), {}}, {other.handle(), {}}}, quick_trainer());
  expect_all(*source, contract, 0, 10);
  stopped.stop();
  for (uint64_t p = 10; p < 200 && !stopped.done(); ++p) {
    expect_all(*source, contract, p, p + 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(stopped.join(), Ending::kBye);
  EXPECT_FALSE(source->producer_stopping());
  EXPECT_EQ(source->counts().producers[0].tally.lost, 0u);
  source->finish();
}

TEST(ManyProducers, TwoOfDifferentContractsAreRefused) {
  Contract contract = test_contract(), another = test_contract();
  another.data = "other rows";
  ProducerThread a(quick_producer(contract), rows_of(contract)), b(quick_producer(another), rows_of(another));
  std::string message;
  EXPECT_EQ(code_of(
                [&] {
                  StreamSource::connect({{a.handle(), {}}, {b.handle(), {}}}, quick_trainer());
                },
                &message),
            Exit::kProtocol);
  EXPECT_NE(message.find("data: wanted"), std::string::npos) << message;
}

TEST(ThePipe, IsExplainedInOneLineByWhoeverLimits) {
  StreamCounts counts;
  counts.tally = {.asked = 100, .trained = 90, .voids = 2, .in_flight = 5, .unanswered = 3, .again = 1, .late = 1};
  counts.producers = {{"producer 7 on n1", {.asked = 101, .answered = 97, .lost = 1, .overtaken = 0, .unanswered = 3}}};
  counts.elapsed_s = 10;
  counts.waited_s = 5;
  counts.supply_per_s = 10;
  std::string line = explain(counts, 1, 1);
  EXPECT_EQ(line,
            "pipe: asked 100 = trained 90 + void 2 + in flight 5 + not yet answered 3; asked again 1, late 1, twice 0 "
            "chunks, damaged 0; producer 7 on n1: asked 101, answered 97, lost 1; supply 10.0/s, demand 18.4/s: the "
            "producers limit the trainer (waits 50.0 % of the time)");
  counts.waited_s = 0.01;
  EXPECT_NE(explain(counts, 1, 1).find("the trainer limits the producers (waits 0.1 % of the time)"),
            std::string::npos);
}

ProducerOptions open_producer(const Contract& contract) {
  ProducerOptions options = quick_producer(contract);
  options.bind = "tcp://0.0.0.0:*";
  return options;
}

// As it is found on this host.
Handle near(const std::string& line) {
  Handle handle = Handle::parse(line, "test");
  for (std::string* address : {&handle.endpoints[0].data, &handle.endpoints[0].control})
    *address = "tcp://127.0.0.1" + address->substr(address->rfind(':'));
  return handle;
}

TEST(Encrypted, AStreamBeyondLoopbackServesTheHolderOfItsHandle) {
  Contract contract = test_contract();
  ProducerThread producer(open_producer(contract), rows_of(contract));
  Handle handle = near(producer.handle());
  ASSERT_TRUE(handle.encryption) << "beyond loopback nothing is served in the clear";
  auto source = StreamSource::connect(handle.line(), quick_trainer());
  expect_all(*source, contract, 0, 10);
  source->finish();
  EXPECT_EQ(producer.join(), Ending::kBye);
}

TEST(Encrypted, WhoKnowsOnlyTheServersKeyIsNotLetIn) {
  Contract contract = test_contract();
  ProducerThread producer(open_producer(contract), rows_of(contract));
  Handle handle = near(producer.handle());
  handle.encryption->client = make_key_pair();
  StreamOptions options = quick_trainer();
  options.connect_s = 0.7;
  EXPECT_EQ(code_of([&] { StreamSource::connect(handle.line(), options); }), Exit::kUnavailable);
  auto source = StreamSource::connect(near(producer.handle()).line(), quick_trainer());
  EXPECT_EQ(source->get(3, soon()).position, 3u) << "the stranger ended only his own connection";
  source->finish();
}

TEST(Encrypted, WhoSpeaksInTheClearIsNotLetIn) {
  Contract contract = test_contract();
  ProducerThread producer(open_producer(contract), rows_of(contract));
  Handle handle = near(producer.handle());
  handle.encryption.reset();
  StreamOptions options = quick_trainer();
  options.connect_s = 0.7;
  EXPECT_EQ(code_of([&] { StreamSource::connect(handle.line(), options); }), Exit::kUnavailable);
}

TEST(Encrypted, OnLoopbackOnlyIfAsked) {
  Contract contract = test_contract();
  ProducerOptions options = quick_producer(contract);
  EXPECT_FALSE(Handle::parse(ProducerThread(options, rows_of(contract)).handle(), "test").encryption);
  options.encrypt = true;
  ProducerThread producer(options, rows_of(contract));
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  EXPECT_EQ(source->get(1, soon()).position, 1u);
  source->finish();
}

TEST(Encrypted, AFullChunkArrives) {
  Contract contract = test_contract();
  ProducerOptions options = quick_producer(contract);
  options.encrypt = true;
  ProducerThread producer(options, [&](uint64_t position) {
    Sample sample = test_sample(contract, position);
    HostTensor large(Dtype::kU8, {static_cast<int64_t>(kChunkBytes) + 1});
    std::memset(large.data(), 0x5a, large.bytes());
    sample.tensors.push_back({"large", std::move(large)});
    return sample;
  });
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  source->want(std::vector<uint64_t>{1});
  EXPECT_EQ(source->get(1, soon()).at("large").bytes(), kChunkBytes + 1);
  source->finish();
}

TEST(Encrypted, AHandleFileIsItsOwnersAlone) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  ProducerThread producer(open_producer(contract), rows_of(contract));
  Handle handle = near(producer.handle());
  write_handle_file(tmp / "h", handle);
  struct stat info {};
  ASSERT_EQ(stat((tmp / "h").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(read_handle_file(tmp / "h").id, handle.id);
  EXPECT_EQ(handle.shown().find(handle.encryption->client.secret), std::string::npos);
  chmod((tmp / "h").c_str(), 0640);
  std::string message;
  EXPECT_EQ(code_of([&] { read_handle_file(tmp / "h"); }, &message), Exit::kNoPermission);
  EXPECT_NE(message.find("others may read it"), std::string::npos) << message;
}

TEST(Encrypted, KeysThatAreNoneAreRefused) {
  Contract contract = test_contract();
  ProducerThread producer(open_producer(contract), rows_of(contract));
  Json json = Json::parse(producer.handle(), "test");
  Json keys = *json.find("encryption");
  for (const char* bad :
       {"", "short", "\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\""}) {
    Json spoilt = json, one = keys;
    spoilt.set("encryption", one.set("server", std::string(bad)));
    EXPECT_EQ(code_of([&] { Handle::parse(spoilt.dump(), "test"); }), Exit::kData) << bad;
  }
}

}  // namespace
}  // namespace sf::stream
