// SPDX-License-Identifier: Apache-2.0
#include "stream/link.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/error.h"
#include "stream/frame.h"

namespace sf::stream {
namespace {

constexpr double kRereadS = 0.1;  // between two looks at the handle file
constexpr int kRefusalMs = 500;   // how long the answer to a refusal is waited for: the exit is not delayed by more
constexpr int kChannelLingerMs = 200;

}  // namespace

std::string routing_id(int rank) {
  return fmt::format("rank{}-{}-{}", rank, getpid(), random_hex(6));
}

Link::Channel::Channel(const Handle& handle, const std::string& id, int linger_ms)
    : data(sockets.dealer(id, 0)), control(sockets.dealer(id, linger_ms)) {
  for (Socket* socket : {&data, &control})
    if (handle.encryption) socket->encrypt_as_client(handle.encryption->client, handle.encryption->server);
  data.connect(handle.endpoints[0].data);
  control.connect(handle.endpoints[0].control);
}

void Link::open(int rank, double now) {
  channel.reset();
  channel = std::make_unique<Channel>(*handle, routing_id(rank), kChannelLingerMs);
  welcomed = stopping = bye = bye_acked = false;
  heard = now;
  next_beat = 0;
  doing.clear();
  produced = 0;
  busy_s = 0;
}

void Link::close() {
  channel.reset();
  welcomed = false;
}

std::optional<Handle> Link::another(double now) {
  if (file.empty() || now < next_reread) return std::nullopt;
  next_reread = now + kRereadS;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  Handle next = read_handle_file(file);
  if (handle && next.id == handle->id) return std::nullopt;
  return next;
}

void refuse(const Handle& producer, Hello hello, const Error& why) {
  if (producer.endpoints.empty()) return;
  Sockets sockets;
  Socket control = sockets.dealer(routing_id(static_cast<int>(hello.rank)), kRefusalMs);
  if (producer.encryption) control.encrypt_as_client(producer.encryption->client, producer.encryption->server);
  control.connect(producer.endpoints[0].control);
  hello.token = producer.token;
  hello.id = producer.id;
  Json json = hello.to_json();
  json.set("status", static_cast<int>(why.code())).set("message", std::string(why.what()).substr(0, kMaxReasonBytes));
  control.send_text("", Kind::kRefused, json.dump());
  Wake nobody;
  for (Deadline deadline = Deadline::after_ms(kRefusalMs); !deadline.passed();) {
    const Socket* sockets_of[] = {&control};
    wait(sockets_of, nobody.fd(), -1, 0, deadline.left_ms());
    if (auto answer = control.receive(); answer && answer->header.kind == Kind::kByeAck) return;
  }
}

}  // namespace sf::stream
