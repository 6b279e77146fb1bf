// SPDX-License-Identifier: Apache-2.0
// What a StreamSource is made of: the caller's side (client.cpp) and the socket thread's (client_thread.cpp).
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "stream/client.h"
#include "stream/frame.h"
#include "stream/link.h"
#include "stream/roster.h"
#include "stream/socket.h"

namespace sf::stream {

// A sample of one producer that has come in part.
struct Parts {
  std::map<uint32_t, int> corrupt;  // chunk index (the header: kHeaderIndex) -> times it came damaged
  std::optional<Assembler> assembler;
};

struct StreamSource::Impl {
  Impl(const std::vector<From>& from, StreamOptions given)
      : options(std::move(given)), asking(options.marks, options.retry_s), links(from.size()), landed(from.size()) {
    for (size_t i = 0; i < from.size(); ++i) links[i].file = from[i].file;
  }

  StreamOptions options;
  Contract contract;  // equal for every producer; read without the mutex: set once, before any thread
  bool contracted = false;
  std::optional<HostPool> pool;  // memory of the samples; once contracted
  std::string self;              // "host:pid"

  // Guarded by `mutex`, `parts` and the sockets of the links apart: they are the socket thread's.
  mutable std::mutex mutex;
  std::unique_lock<std::mutex> turning{mutex, std::defer_lock};  // the socket thread's hold, let go while bytes move
  std::condition_variable changed;
  Asking asking;
  std::vector<Link> links;
  std::vector<std::vector<uint64_t>> landed;        // by link: to be told that they are no longer under way
  std::map<std::pair<uint64_t, int>, Parts> parts;  // by position and link
  std::map<uint64_t, Sample> ready;
  std::optional<Error> failure;
  StreamCounts counts;
  double began = 0, alone_since = 0, data_heard = 0;
  std::string alone_why;
  bool joined = false, bye = false, quit = false, finished = false;

  double last_turn = monotonic_s(), next_line = 0;
  bool life_open = true;
  Wake wake;
  std::thread thread;

  void adopt(Link& link, Handle next);
  Hello hello_to(const Handle& producer) const;
  void refuse_all(const Error& why) const;
  void run();
  void turn();
  void tend(size_t i, double now);
  void pump(size_t i, Socket& socket, double now);
  void on_message(size_t i, const Received& message, double now);
  void on_alive(size_t i, const Json& said);
  void on_refused(size_t i, const Received& message);
  void on_welcome(size_t i, const Received& message);
  void on_data(size_t i, const Received& message, double now);
  bool assemble(const Received& message, Parts& part);
  void on_corrupt(size_t i, const FrameHeader& header, Parts& part, const std::string& why);
  void complete(size_t i, uint64_t position, Sample sample, double now);
  void beat(size_t i, double now);
  void send_asks(double now);
  void check_life(short events, double now);
  void lose(size_t i, const std::string& why, double now);
  void leave(size_t i);
  bool any_channel() const;
  std::string state_of_links(double now) const;
  StreamCounts seen(double now) const;
  void fail_with(Exit code, std::string message);
  void report(const std::string& line) const {
    if (options.report) options.report(line);
  }
};

}  // namespace sf::stream
