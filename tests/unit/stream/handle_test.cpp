// SPDX-License-Identifier: Apache-2.0
#include "stream/handle.h"

#include <unistd.h>

#include "base/file.h"
#include "support.h"

namespace sf::stream {
namespace {

Handle test_handle() {
  Handle handle;
  handle.id = "0123456789abcdef";
  handle.endpoints.push_back({"tcp://127.0.0.1:1", "tcp://127.0.0.1:2"});
  handle.contract = test_contract();
  handle.pid = 12;
  handle.host = "n01";
  handle.token = "secret";
  handle.code = "0.1.0";
  return handle;
}

TEST(HandleLine, IsOneLineThatReadsBack) {
  Handle handle = test_handle();
  std::string line = handle.line();
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(Handle::parse(line, "t").line(), line);
}

TEST(HandleLine, ShownToPeopleItHidesTheToken) {
  EXPECT_EQ(test_handle().shown().find("secret"), std::string::npos);
}

TEST(HandleLine, WhatIsNotAHandleIsRefusedWithItsStatus) {
  Json json = test_handle().to_json();
  auto changed = [&](const char* key, Json value) {
    Json copy = json;
    copy.set(key, std::move(value));
    return copy.dump();
  };
  EXPECT_EQ(code_of([&] { Handle::parse("{}", "t"); }), Exit::kData);
  EXPECT_EQ(code_of([&] { Handle::parse("run/latest", "t"); }), Exit::kData);
  EXPECT_EQ(code_of([&] { Handle::parse(changed("kind", "features"), "t"); }), Exit::kData);
  EXPECT_EQ(code_of([&] { Handle::parse(changed("v", 2), "t"); }), Exit::kProtocol);
  EXPECT_EQ(code_of([&] { Handle::parse(changed("contract_digest", "00"), "t"); }), Exit::kProtocol);
  EXPECT_EQ(code_of([&] { Handle::parse(changed("endpoints", Json::array()), "t"); }), Exit::kData);
  EXPECT_EQ(code_of([&] { Handle::parse(changed("token", std::string(200, 'x')), "t"); }), Exit::kData);
  EXPECT_EQ(code_of([&] { Handle::parse(std::string(kMaxHandleBytes + 1, ' '), "t"); }), Exit::kData);
}

TEST(HandleLine, AFieldOfAnotherTypeIsNamed) {
  Handle handle = test_handle();
  handle.encryption =
      Encryption{std::string(kKeyLetters, 'a'), {std::string(kKeyLetters, 'b'), std::string(kKeyLetters, 'c')}};
  const Json whole = handle.to_json();
  auto refusal_names = [&](const Json& json, const std::string& key) {
    std::string message;
    EXPECT_EQ(code_of([&] { Handle::parse(json.dump(), "t"); }, &message), Exit::kData) << key;
    EXPECT_NE(message.find("field " + key + ": wanted"), std::string::npos) << key << ": " << message;
  };
  for (const auto& [key, value] : whole.as_object()) {
    if (key == "kind" || key == "contract" || key == "encryption") continue;
    refusal_names(Json(whole).set(key, true), key);
  }
  for (const char* of : {"contract", "encryption"})
    for (const auto& [key, value] : whole.at(of).as_object())
      refusal_names(Json(whole).set(of, Json(whole.at(of)).set(key, true)), key);
  refusal_names(Json(whole).set("endpoints", Json::Array{Json::object().set("data", 7).set("control", 7)}), "data");
}

TEST(HandleLine, AnAddressNobodyCanConnectToIsRefusedBeforeItIsWaitedFor) {
  for (const char* address : {"", "http://x", "tcp://", "tcp://:5", "tcp://h", "tcp://h:", "tcp://h:0", "tcp://h:65536",
                              "tcp://h:-1", "tcp://h:5x", "ipc:///tmp/x"}) {
    Handle handle = test_handle();
    handle.endpoints = {{address, "tcp://127.0.0.1:2"}};
    std::string message;
    EXPECT_EQ(code_of([&] { Handle::parse(handle.line(), "t"); }, &message), Exit::kData) << address;
    EXPECT_NE(message.find("tcp://HOST:PORT"), std::string::npos) << message;
  }
}

class Pipe {
 public:
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    reader = UniqueFd(ends[0]);
    writer = UniqueFd(ends[1]);
  }
  UniqueFd reader, writer;
};

TEST(HandleFromPipe, TakesTheLineAndNothingBehindIt) {
  Pipe pipe;
  write_all(pipe.writer.get(), test_handle().line() + "x", "pipe");
  EXPECT_EQ(read_handle(pipe.reader.get(), soon()).id, test_handle().id);
  char next = 0;
  EXPECT_EQ(read(pipe.reader.get(), &next, 1), 1);
  EXPECT_EQ(next, 'x');
}

TEST(HandleFromPipe, AWriterThatDiesFirstIsMissingInput) {
  Pipe empty, half;
  empty.writer = UniqueFd();
  write_all(half.writer.get(), std::string_view("{\"kind\""), "pipe");
  half.writer = UniqueFd();
  std::string message;
  EXPECT_EQ(code_of([&] { read_handle(empty.reader.get(), soon()); }, &message), Exit::kNoInput);
  EXPECT_NE(message.find("before a stream handle came"), std::string::npos) << message;
  EXPECT_EQ(code_of([&] { read_handle(half.reader.get(), soon()); }), Exit::kNoInput);
}

TEST(HandleFromPipe, ASilentWriterEndsAtTheDeadline) {
  Pipe pipe;
  EXPECT_EQ(code_of([&] { read_handle(pipe.reader.get(), Deadline::after_ms(30)); }), Exit::kUnavailable);
}

TEST(HandleFromPipe, EndlessInputWithoutALineIsRefused) {
  Pipe pipe;
  std::thread writer([&] {
    try {
      for (int i = 0; i < 3; ++i) write_all(pipe.writer.get(), std::string(kMaxHandleBytes / 2, 'x'), "pipe");
    } catch (const Error&) {
    }
  });
  EXPECT_EQ(code_of([&] { read_handle(pipe.reader.get(), soon()); }), Exit::kData);
  char rest[4096];
  for (size_t left = kMaxHandleBytes / 2; left > 0;)
    left -= std::min(left, static_cast<size_t>(read(pipe.reader.get(), rest, sizeof rest)));
  writer.join();
}

TEST(HandleFile, IsWaitedForAndRemovedOnlyByItsOwner) {
  TemporaryDir tmp;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    write_handle_file(tmp / "h.json", test_handle());
  });
  EXPECT_EQ(wait_for_handle_file(tmp / "h.json", soon()).id, test_handle().id);
  later.join();
  remove_handle_file(tmp / "h.json", "another");
  EXPECT_TRUE(std::filesystem::exists(tmp / "h.json"));
  remove_handle_file(tmp / "h.json", test_handle().id);
  EXPECT_FALSE(std::filesystem::exists(tmp / "h.json"));
}

TEST(HandleFile, ThatNeverComesEndsAtTheDeadline) {
  TemporaryDir tmp;
  EXPECT_EQ(code_of([&] { wait_for_handle_file(tmp / "h.json", Deadline::after_ms(30)); }), Exit::kUnavailable);
}

}  // namespace
}  // namespace sf::stream
