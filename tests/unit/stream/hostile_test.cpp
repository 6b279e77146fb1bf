// SPDX-License-Identifier: Apache-2.0
// Peers that lie, damage, repeat, reorder and lose: a scripted producer against StreamSource, raw messages against
// Producer.
#include <unistd.h>

#include <zmq.hpp>

#include "base/file.h"
#include "stream/flow.h"
#include "stream/frame.h"
#include "stream/roster.h"
#include "stream/socket.h"
#include "support.h"

namespace sf::stream {
namespace {

StreamOptions quick_retry() {
  StreamOptions options = quick_trainer();
  options.retry_s = 0.2;
  return options;
}

// Answers hello, heartbeat and BYE as a producer does; what it answers to an ask is the script's affair.
class FakeProducer {
 public:
  using Send = std::function<void(const Frame&)>;
  using Script = std::function<void(const Ask&, const Send&)>;

  // `welcome_id`: said instead of its own, if set.
  explicit FakeProducer(Script script, std::string welcome_id = "")
      : script_(std::move(script)),
        welcome_id_(std::move(welcome_id)),
        data_(sockets_.router(0)),
        control_(sockets_.router(100)) {
    handle.version = kWireVersion;
    handle.id = random_hex(8);
    handle.contract = test_contract();
    handle.endpoints.push_back({data_.bind("tcp://127.0.0.1:*"), control_.bind("tcp://127.0.0.1:*")});
    handle.code = "test";
    thread_ = std::thread([this] { run(); });
  }
  ~FakeProducer() {
    quit_ = true;
    wake_.ring();
    thread_.join();
  }

  Handle handle;

 private:
  void run() {
    while (!quit_) {
      const Socket* both[] = {&control_, &data_};
      wait(both, wake_.fd(), -1, 0, 50);
      while (auto message = control_.receive()) {
        Json json = Json::object();
        json.set("id", welcome_id_.empty() ? handle.id : welcome_id_).set("contract_digest", handle.contract.digest());
        Kind kind = message->header.kind;
        Kind answer = kind == Kind::kHello ? Kind::kWelcome : kind == Kind::kBye ? Kind::kByeAck : Kind::kAlive;
        control_.send_text(message->peer, answer, json.dump());
      }
      while (auto message = data_.receive()) {
        script_(decode_ask(message->payload), [&](const Frame& frame) { data_.send(message->peer, frame); });
      }
    }
  }

  Script script_;
  std::string welcome_id_;
  Sockets sockets_;
  Socket data_, control_;
  Wake wake_;
  std::atomic<bool> quit_{false};
  std::thread thread_;
};

std::vector<uint64_t> asked(const Ask& ask) {
  std::vector<uint64_t> positions = ask.now;
  positions.insert(positions.end(), ask.want.begin(), ask.want.end());
  return positions;
}

uint64_t right_digest(uint64_t position) {
  return digest_of(test_sample(test_contract(), position));
}

TEST(Hostile, ADamagedChunkIsAskedAgainAndTheSampleComesWhole) {
  int damaged = 2;
  FakeProducer producer([&](const Ask& ask, const FakeProducer::Send& send) {
    for (uint64_t p : asked(ask)) {
      for_each_frame(test_sample(test_contract(), p), [&](const Frame& frame) {
        std::vector<std::byte> payload(frame.payload.begin(), frame.payload.end());
        if (frame.header.kind == Kind::kChunk && frame.header.index == 1 && damaged > 0)
          --damaged, payload[7] ^= std::byte{4};
        send({frame.header, payload});
      });
    }
  });
  auto source = StreamSource::connect(producer.handle.line(), quick_trainer());
  EXPECT_EQ(digest_of(source->get(1, soon())), right_digest(1));
  EXPECT_EQ(source->counts().corrupt, 2u);
  EXPECT_EQ(source->counts().tally.again, 2u);
  source->finish();
}

TEST(Hostile, ADamagedSampleHeaderIsAskedAgain) {
  int damaged = 1;
  FakeProducer producer([&](const Ask& ask, const FakeProducer::Send& send) {
    for (uint64_t p : asked(ask)) {
      for_each_frame(test_sample(test_contract(), p), [&](const Frame& frame) {
        std::vector<std::byte> payload(frame.payload.begin(), frame.payload.end());
        if (frame.header.kind == Kind::kSample && damaged > 0) --damaged, payload[3] ^= std::byte{1};
        send({frame.header, payload});
      });
    }
  });
  auto source = StreamSource::connect(producer.handle.line(), quick_trainer());
  EXPECT_EQ(digest_of(source->get(1, soon())), right_digest(1));
  EXPECT_EQ(source->counts().corrupt, 1u);
  source->finish();
}

TEST(Hostile, ChunksInReverseOrderAndTwiceMakeTheSample) {
  FakeProducer producer([&](const Ask& ask, const FakeProducer::Send& send) {
    for (uint64_t p : asked(ask)) {
      Sample sample = test_sample(test_contract(), p);
      std::vector<Frame> frames;
      for_each_frame(sample, [&](const Frame& frame) {
        if (frame.header.kind == Kind::kSample) return send(frame);
        frames.push_back(frame);
      });
      for (size_t i = frames.size(); i-- > 1;) send(frames[i]), send(frames[i]);
      send(frames[0]);
    }
  });
  auto source = StreamSource::connect(producer.handle.line(), quick_trainer());
  EXPECT_EQ(digest_of(source->get(1, soon())), right_digest(1));
  EXPECT_EQ(source->counts().repeated, 1u);
  source->finish();
}

TEST(Hostile, ALostAskIsAskedAgain) {
  int lost = 2;
  FakeProducer producer([&](const Ask& ask, const FakeProducer::Send& send) {
    if (lost-- > 0) return;
    for (uint64_t p : asked(ask)) for_each_frame(test_sample(test_contract(), p), send);
  });
  auto source = StreamSource::connect(producer.handle.line(), quick_retry());
  EXPECT_EQ(digest_of(source->get(1, soon())), right_digest(1));
  EXPECT_EQ(source->counts().tally.again, 2u);
  source->finish();
}

TEST(Hostile, ALostChunkIsAskedAgain) {
  bool first = true;
  FakeProducer producer([&](const Ask& ask, const FakeProducer::Send& send) {
    for (uint64_t p : asked(ask)) {
      for_each_frame(test_sample(test_contract(), p), [&](const Frame& frame) {
        if (!first || frame.header.kind == Kind::kSample || frame.header.index == 0) send(frame);
      });
      first = false;
    }
  });
  auto source = StreamSource::connect(producer.handle.line(), quick_retry());
  EXPECT_EQ(digest_of(source->get(1, soon())), right_digest(1));
  EXPECT_EQ(source->counts().tally.again, 1u);
  source->finish();
}

TEST(Hostile, FramesNobodyAskedForAreCountedAndLeftOut) {
  FakeProducer producer([&](const Ask& ask, const FakeProducer::Send& send) {
    for (uint64_t p : asked(ask)) {
      for_each_frame(test_sample(test_contract(), p + 1000), send);
      for_each_frame(test_sample(test_contract(), p), send);
      for_each_frame(test_sample(test_contract(), p), send);  // a second answer
    }
  });
  auto source = StreamSource::connect(producer.handle.line(), quick_trainer());
  for (uint64_t p : {1, 2, 3}) EXPECT_EQ(digest_of(source->get(p, soon())), right_digest(p));
  EXPECT_GE(source->counts().tally.late, 5u);
  EXPECT_EQ(source->counts().received, 3u);
  source->finish();
}

TEST(Hostile, ARowThatIsNotThePositionsIsAProtocolError) {
  FakeProducer producer([&](const Ask& ask, const FakeProducer::Send& send) {
    for (uint64_t p : asked(ask)) {
      Sample sample = test_sample(test_contract(), p + 1);
      sample.position = p;
      for_each_frame(sample, send);
    }
  });
  auto source = StreamSource::connect(producer.handle.line(), quick_trainer());
  std::string message;
  EXPECT_EQ(code_of([&] { source->get(1, soon()); }, &message), Exit::kProtocol);
  EXPECT_NE(message.find("sent row"), std::string::npos) << message;
}

TEST(Hostile, AHeaderThatPromisesTooMuchEndsAsAProtocolError) {
  std::string text = R"({"row":1,"tensors":[{"name":"a","dtype":"F32","shape":[1099511627776]}]})";
  FakeProducer producer([&](const Ask& ask, const FakeProducer::Send& send) {
    auto payload = std::as_bytes(std::span(text.data(), text.size()));
    for (uint64_t p : asked(ask)) send({header_for(Kind::kSample, p, 1, payload), payload});
  });
  auto source = StreamSource::connect(producer.handle.line(), quick_trainer());
  std::string message;
  EXPECT_EQ(code_of([&] { source->get(1, soon()); }, &message), Exit::kProtocol);
  EXPECT_NE(message.find("over 4294967296 bytes"), std::string::npos) << message;
}

TEST(Hostile, AChunkNumberedBeyondTheSampleEndsAsAProtocolError) {
  FakeProducer producer([&](const Ask& ask, const FakeProducer::Send& send) {
    for (uint64_t p : asked(ask)) {
      for_each_frame(test_sample(test_contract(), p), [&](const Frame& frame) {
        FrameHeader header = frame.header;
        if (header.kind == Kind::kChunk) header.index += 7;
        send({header, frame.payload});
      });
    }
  });
  auto source = StreamSource::connect(producer.handle.line(), quick_trainer());
  EXPECT_EQ(code_of([&] { source->get(1, soon()); }), Exit::kProtocol);
}

TEST(Hostile, AnOldHandleWhosePortAnotherStreamHasIsAProtocolError) {
  FakeProducer producer([](const Ask&, const FakeProducer::Send&) {}, "another");
  std::string message;
  EXPECT_EQ(code_of([&] { StreamSource::connect(producer.handle.line(), quick_trainer()); }, &message),
            Exit::kProtocol);
  EXPECT_NE(message.find("is the handle old?"), std::string::npos) << message;
}

TEST(Hostile, AHandleToNobodyEndsAtTheDeadlineNamingTheAddress) {
  Handle handle;
  {
    FakeProducer producer([](const Ask&, const FakeProducer::Send&) {});
    handle = producer.handle;
  }
  StreamOptions options = quick_trainer();
  options.connect_s = 0.2;
  std::string message;
  EXPECT_EQ(code_of([&] { StreamSource::connect(handle.line(), options); }, &message), Exit::kUnavailable);
  EXPECT_NE(message.find(handle.endpoints[0].control), std::string::npos) << message;
}

TEST(Hostile, APipeThatCarriesMoreThanTheHandleIsAProtocolError) {
  FakeProducer producer([](const Ask&, const FakeProducer::Send&) {});
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  UniqueFd reader(ends[0]), writer(ends[1]);
  StreamOptions options = quick_trainer();
  options.life_fd = reader.get();
  auto source = StreamSource::connect(producer.handle.line(), options);
  ASSERT_EQ(write(writer.get(), "!", 1), 1);
  EXPECT_EQ(code_of([&] { source->get(1, soon()); }), Exit::kProtocol);
}

// Raw messages into both sockets of a real producer that serves a real trainer all the while.
TEST(Hostile, NoMessageDisturbsAProducerThatServesAnother) {
  Contract contract = test_contract(1000);
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  Handle handle = Handle::parse(producer.handle(), "test");
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  zmq::context_t context(1);
  zmq::socket_t data(context, zmq::socket_type::dealer), control(context, zmq::socket_type::dealer);
  for (auto* socket : {&data, &control}) socket->set(zmq::sockopt::linger, 0);
  data.connect(handle.endpoints[0].data);
  control.connect(handle.endpoints[0].control);
  Rng rng(9, "junk");
  auto valid = encode(header_for(Kind::kAsk, 0, 0, {}));
  for (uint64_t i = 0; i < 300; ++i) {
    std::string text(rng.below(120, i), '\0');
    for (size_t k = 0; k < text.size(); ++k) text[k] = static_cast<char>(rng.bits(i, k));
    if (i % 3 == 0) text.assign(reinterpret_cast<const char*>(valid.data()), valid.size());
    zmq::socket_t& socket = i % 2 ? data : control;
    for (uint64_t part = rng.below(4, i, 9); part-- > 0;) socket.send(zmq::buffer(text), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(text), zmq::send_flags::none);
    if (i % 10 != 0) continue;
    EXPECT_EQ(digest_of(source->get(i, soon())), digest_of(test_sample(contract, i)));
  }
  for (int i = 0; i < 1000 && producer.counts().bad_messages <= 100; ++i) usleep(5000);
  EXPECT_GT(producer.counts().bad_messages, 100u);
  EXPECT_EQ(digest_of(source->get(999, soon())), digest_of(test_sample(contract, 999)));
  source->finish();
  EXPECT_EQ(producer.join(), Ending::kBye);
}

TEST(Hostile, ARefusalByWhoeverLacksTheHandleEndsNothing) {
  Contract contract = test_contract();
  ProducerOptions options = quick_producer(contract);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  options.life_fd = ends[1];
  ProducerThread producer(options, [&](uint64_t p) { return test_sample(contract, p); });
  Handle handle = Handle::parse(producer.handle(), "test");
  Sockets sockets;
  Socket control = sockets.dealer("stranger", 0);
  control.connect(handle.endpoints[0].control);
  Json json = Hello{kWireVersion, 0, 1, 0, "", "guessed", handle.id, "stranger"}.to_json();
  control.send_text("", Kind::kRefused, json.set("status", 76).set("message", "no").dump());
  for (int i = 0; i < 1000 && producer.counts().bad_messages == 0; ++i) usleep(2000);
  EXPECT_EQ(producer.counts().bad_messages, 1u);
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  EXPECT_EQ(source->get(1, soon()).position, 1u);
  source->finish();
  EXPECT_EQ(producer.join(), Ending::kBye);
  for (int end : ends) close(end);
}

TEST(Hostile, AMessageOverTheLimitIsCutOffByTheSocket) {
  Contract contract = test_contract();
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  Handle handle = Handle::parse(producer.handle(), "test");
  zmq::context_t context(1);
  zmq::socket_t data(context, zmq::socket_type::dealer);
  data.set(zmq::sockopt::linger, 0);
  data.connect(handle.endpoints[0].data);
  data.send(zmq::message_t(kChunkBytes + 1024), zmq::send_flags::none);
  auto source = StreamSource::connect(producer.handle(), quick_trainer());
  EXPECT_EQ(source->get(1, soon()).position, 1u);
  source->finish();
  EXPECT_EQ(producer.join(), Ending::kBye);
  EXPECT_EQ(producer.counts().bad_messages, 0u) << "the connection was closed before the message became one";
}

}  // namespace
}  // namespace sf::stream
