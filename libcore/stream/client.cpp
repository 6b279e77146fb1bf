// SPDX-License-Identifier: Apache-2.0
#include "stream/client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "stream/flow.h"
#include "stream/frame.h"
#include "stream/roster.h"
#include "stream/socket.h"

namespace sf::stream {
namespace {

constexpr int kCorruptLimit = 3;      // times one chunk may come damaged
constexpr uint64_t kBadLimit = 1000;  // messages that are no frames at all
constexpr int kMaxBurst = 64;
constexpr double kRereadS = 0.1;  // between two looks at the handle file
constexpr int kRefusalMs = 500;   // how long the answer to a refusal is waited for: the exit is not delayed by more

// A position asked for and not yet complete.
struct Outstanding {
  enum class Next { kAsk, kAskAgain, kWait };
  Next next = Next::kAsk;
  bool now = false;                 // a caller waits in get()
  double progress = 0;              // when it was asked or a chunk of it came
  std::map<uint32_t, int> corrupt;  // chunk index (the header: kHeaderIndex) -> times it came damaged
  std::optional<Assembler> parts;
};
constexpr uint32_t kHeaderIndex = UINT32_MAX;
using Next = Outstanding::Next;

}  // namespace

struct StreamSource::Impl {
  explicit Impl(StreamOptions given) : options(std::move(given)) {}

  StreamOptions options;
  Handle handle;      // of the producer we talk to now; guarded by `mutex`
  Contract contract;  // equal for every producer that may take over
  std::string self;   // "host:pid"

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, Outstanding> outstanding;
  std::map<uint64_t, Sample> ready;
  std::vector<uint64_t> taken;
  size_t held = 0;  // bytes in `ready`
  std::optional<Error> failure;
  StreamCounts counts;
  bool welcomed = false, stopping = false, bye = false, bye_acked = false, quit = false, finished = false;
  double heard = 0;
  // What the producer's last heartbeat said.
  std::string doing;
  std::optional<uint64_t> computing;
  int64_t queued = 0;

  // Owned by the socket thread.
  struct Link {
    Sockets sockets;
    Socket data, control;
    Link(const std::string& id, const Endpoint& endpoint, int linger_ms)
        : data(sockets.dealer(id, 0)), control(sockets.dealer(id, linger_ms)) {
      data.connect(endpoint.data);
      control.connect(endpoint.control);
    }
  };
  std::unique_ptr<Link> link;
  double data_heard = 0, last_turn = monotonic_s(), next_beat = 0, lost_at = 0, next_reread = 0;
  std::string lost_why;
  bool lost = false, life_open = true;

  Wake wake;
  std::thread thread;

  void adopt(Handle next);
  void open_link(double now);
  void refuse(const Handle& offered, const Error& why);
  Hello hello_to(const Handle& producer) const;
  void run();
  void turn();
  void pump(Socket& socket, double now);
  void on_message(const Received& message, double now);
  void on_refused(const Received& message);
  void on_welcome(const Received& message);
  void on_data(const Received& message, double now);
  void on_corrupt(const FrameHeader& header, Outstanding& waiting, const std::string& why);
  void complete(uint64_t position, Outstanding& waiting);
  void beat(double now);
  bool overdue(uint64_t position, const Outstanding& waiting, double now) const;
  void send_asks(double now);
  void check_life(short events, double now);
  void lose(const std::string& why, double now);
  void try_rejoin(double now);
  void fail_with(Exit code, std::string message);
  void report(const std::string& line) const {
    if (options.report) options.report(line);
  }
  std::string who() const { return handle.who(); }
};

// What of a handle must hold before we talk to its producer.
void StreamSource::Impl::adopt(Handle next) {
  SF_CHECK(next.endpoints.size() == 1, Exit::kProtocol, "endpoints: wanted 1 producer, found {}",
           next.endpoints.size());
  if (!fault("stream.wrong_contract")) {
    auto unmet = options.wanted.unmet_by(next.contract);
    SF_CHECK(!unmet, Exit::kProtocol, "contract of {} differs in {}", next.who(), unmet.value_or(""));
    if (!handle.id.empty()) {
      auto changed_field = contract.difference(next.contract);
      SF_CHECK(!changed_field, Exit::kProtocol, "the restarted {} has another contract: {}", next.who(),
               changed_field.value_or(""));
    }
  }
  if (next.code != options.code) {
    report(fmt::format("code version: ours {}, of {} {}", options.code, next.who(), next.code));
  }
  if (handle.id.empty()) contract = next.contract;  // read without the mutex: set once, before any thread
  handle = std::move(next);
}

void StreamSource::Impl::open_link(double now) {
  std::string id = fmt::format("rank{}-{}-{}", options.rank, getpid(), random_hex(6));
  link.reset();
  link = std::make_unique<Link>(id, handle.endpoints[0], 200);
  welcomed = false;
  heard = now;
  next_beat = 0;
}

Hello StreamSource::Impl::hello_to(const Handle& producer) const {
  return {kWireVersion, options.rank,   options.world, static_cast<int64_t>(options.credit_bytes),
          options.code, producer.token, producer.id,   self};
}

// Tells a producer why it will not be asked. Best effort: who does not answer finds the pipe closed instead.
void StreamSource::Impl::refuse(const Handle& offered, const Error& why) {
  if (offered.endpoints.empty()) return;
  Sockets sockets;
  Socket control = sockets.dealer(fmt::format("rank{}-{}-{}", options.rank, getpid(), random_hex(6)), kRefusalMs);
  control.connect(offered.endpoints[0].control);
  Json json = hello_to(offered).to_json();
  json.set("status", static_cast<int>(why.code())).set("message", std::string(why.what()).substr(0, kMaxReasonBytes));
  control.send_text("", Kind::kRefused, json.dump());
  for (Deadline deadline = Deadline::after_ms(kRefusalMs); !deadline.passed();) {
    wait(&control, nullptr, wake.fd(), -1, 0, deadline.left_ms());
    if (auto answer = control.receive(); answer && answer->header.kind == Kind::kByeAck) return;
  }
}

void StreamSource::Impl::fail_with(Exit code, std::string message) {
  if (!failure) failure.emplace(code, std::move(message));
  changed.notify_all();
}

void StreamSource::Impl::run() {
  try {
    std::unique_lock lock(mutex);
    while (!quit) {
      lock.unlock();
      turn();
      lock.lock();
      if (failure) link.reset();
    }
    link.reset();
  } catch (const Error& error) {
    std::lock_guard lock(mutex);
    fail_with(error.code(), error.what());
  } catch (const std::exception& error) {
    std::lock_guard lock(mutex);
    fail_with(Exit::kSoftware, fmt::format("the socket thread failed: {}", error.what()));
  }
}

void StreamSource::Impl::turn() {
  const Socket* control = link ? &link->control : nullptr;
  const Socket* data = link ? &link->data : nullptr;
  int timeout = static_cast<int>(std::min(options.heartbeat_s * 500, lost ? kRereadS * 1000 : 1e9)) + 1;
  Ready ready = wait(control, data, wake.fd(), life_open ? options.life_fd : -1, POLLIN, timeout);
  wake.clear();
  double now = monotonic_s();
  std::lock_guard lock(mutex);
  if (failure) return;
  // After we ourselves were suspended (Ctrl-Z stops both sides), silence says nothing about the producer.
  double gap = now - last_turn;
  if (gap > options.silent_s / 2 + options.heartbeat_s) heard += gap;
  last_turn = now;
  if (link) pump(link->control, now);
  if (link) pump(link->data, now);  // the first may have found the producer lost, and the link gone
  check_life(ready.life, now);
  if (failure) return;
  if (lost) return try_rejoin(now);
  if (now >= next_beat) beat(now);
  if (welcomed && !lost && !failure) send_asks(now);
}

void StreamSource::Impl::pump(Socket& socket, double now) {
  for (int i = 0; i < kMaxBurst && !failure && !lost; ++i) {
    try {
      auto message = socket.receive();
      if (!message) return;
      heard = now;
      on_message(*message, now);
    } catch (const Error& error) {
      if (error.code() == Exit::kProtocol) return fail_with(error.code(), fmt::format("{}: {}", who(), error.what()));
      if (error.code() != Exit::kData) throw;
      if (counts.bad_messages++ == 0) report(fmt::format("a message of {} was refused: {}", who(), error.what()));
      if (counts.bad_messages > kBadLimit) {
        return fail_with(Exit::kProtocol,
                         fmt::format("{} sent {} damaged messages, the last: {}", who(), kBadLimit, error.what()));
      }
    }
  }
}

void StreamSource::Impl::on_message(const Received& message, double now) {
  switch (message.header.kind) {
    case Kind::kWelcome:
      return on_welcome(message);
    case Kind::kRefused:
    case Kind::kFailed:
      return on_refused(message);
    case Kind::kAlive: {
      Json json = json_payload(message.header, message.payload);
      if (json.get_bool("stopping", false) && !stopping) report(who() + " was told to stop");
      stopping = stopping || json.get_bool("stopping", false);
      const Json* position = json.find("computing");
      computing.reset();
      if (position && position->is_int()) computing = static_cast<uint64_t>(position->as_int());
      queued = json.get_int("queued", 0);
      doing = computing ? fmt::format("computes position {} since {:.1f} s", *computing, json.get_double("for_s", 0))
                        : "computes nothing";
      return;
    }
    case Kind::kWho:
      welcomed = false;
      next_beat = 0;
      return;
    case Kind::kByeAck:
      bye_acked = true;
      changed.notify_all();
      return;
    case Kind::kSample:
    case Kind::kChunk:
      return on_data(message, now);
    default:
      fail(Exit::kData, "a producer sent a frame of kind {}", static_cast<int>(message.header.kind));
  }
}

void StreamSource::Impl::on_welcome(const Received& message) {
  Json json = json_payload(message.header, message.payload);
  std::string digest = json.at("contract_digest").as_string(), id = json.at("id").as_string();
  if (digest != contract.digest() || id != handle.id) {
    return fail_with(Exit::kProtocol,
                     fmt::format("{} is not the one of the handle (id: wanted {}, found {}); is the handle old?", who(),
                                 handle.id, id));
  }
  welcomed = true;
  for (auto& [position, waiting] : outstanding) waiting.next = Next::kAsk;
  changed.notify_all();
}

void StreamSource::Impl::on_refused(const Received& message) {
  Json json = json_payload(message.header, message.payload);
  int64_t code = json.get_int("code", static_cast<int64_t>(Exit::kUnavailable));
  std::string text = json.get_string("message", "no reason given").substr(0, kMaxReasonBytes);
  if (message.header.kind == Kind::kRefused) {
    // Only what is wrong with us keeps its status; what the producer suffers is, here, an unavailable peer.
    bool ours = code == static_cast<int64_t>(Exit::kProtocol) || code == static_cast<int64_t>(Exit::kNoPermission);
    return fail_with(ours ? static_cast<Exit>(code) : Exit::kUnavailable,
                     fmt::format("{} refused us: {}", who(), text));
  }
  lose(fmt::format("ended with status {}: {}", code, text), monotonic_s());
}

void StreamSource::Impl::on_corrupt(const FrameHeader& header, Outstanding& waiting, const std::string& why) {
  ++counts.corrupt;
  bool head = header.kind == Kind::kSample;
  if (++waiting.corrupt[head ? kHeaderIndex : header.index] >= kCorruptLimit) {
    return fail_with(Exit::kProtocol, fmt::format("{} of position {} from {} came damaged {} times: {}",
                                                  head ? "the header" : fmt::format("chunk {}", header.index),
                                                  header.position, who(), kCorruptLimit, why));
  }
  ++counts.asked_again;
  waiting.next = Next::kAskAgain;
}

void StreamSource::Impl::on_data(const Received& message, double now) {
  const FrameHeader& header = message.header;
  data_heard = now;
  auto found = outstanding.find(header.position);
  if (found == outstanding.end()) {
    ++counts.unasked;
    return;
  }
  Outstanding& waiting = found->second;
  if (header.kind == Kind::kChunk && !waiting.parts) return;  // its header was damaged: all of it is asked again
  try {
    if (header.kind == Kind::kSample && !waiting.parts) {
      SF_CHECK(payload_intact(header, message.payload), Exit::kData, "its XXH3 differs");
      waiting.parts.emplace(Frame{header, message.payload});
    } else if (header.kind == Kind::kSample) {
      ++counts.repeated;
    } else {
      Assembler::Got got = waiting.parts->put(header, message.payload);
      SF_CHECK(got != Assembler::Got::kCorrupt, Exit::kData, "its length or XXH3 differs");
      counts.repeated += got == Assembler::Got::kRepeat;
    }
  } catch (const Error& error) {
    if (error.code() != Exit::kData) throw;
    return on_corrupt(header, waiting, error.what());
  }
  waiting.progress = now;
  if (waiting.parts->complete()) complete(header.position, waiting);
}

void StreamSource::Impl::complete(uint64_t position, Outstanding& waiting) {
  Sample sample = waiting.parts->take();
  outstanding.erase(position);
  uint64_t row = place_of(position, contract.rows, contract.order_seed).row;
  if (sample.row != row) {
    return fail_with(Exit::kProtocol,
                     fmt::format("position {} is row {}, {} sent row {}", position, row, who(), sample.row));
  }
  ++counts.received;
  counts.received_bytes += sample.bytes();
  counts.voids += sample.void_reason.has_value();
  held += sample.bytes();
  counts.peak_held = std::max(counts.peak_held, held);
  ready.emplace(position, std::move(sample));
  changed.notify_all();
}

void StreamSource::Impl::beat(double now) {
  next_beat = now + options.heartbeat_s;
  if (now - heard > options.silent_s) return lose(fmt::format("has been silent for {:.1f} s", now - heard), now);
  if (bye) {
    link->control.send_text("", Kind::kBye, "{}");
  } else if (welcomed) {
    if (!fault("stream.mute_trainer")) link->control.send_text("", Kind::kAlive, "{}");
  } else {
    link->control.send_text("", Kind::kHello, hello_to(handle).to_json().dump());
  }
}

// An ask or its answer was lost: nothing of it came for a while, nothing else is on its way, and the producer neither
// computes it nor (unless a caller waits for it) has anything of ours left to do.
bool StreamSource::Impl::overdue(uint64_t position, const Outstanding& waiting, double now) const {
  return now - std::max(waiting.progress, data_heard) > options.retry_s && computing != position &&
         (waiting.now || queued == 0);
}

void StreamSource::Impl::send_asks(double now) {
  Ask ask;
  auto flush = [&] {
    std::vector<std::byte> payload = encode(ask);
    link->data.send("", {header_for(Kind::kAsk, 0, 0, payload), payload});
    ask = {};
  };
  auto add = [&](std::vector<uint64_t>& list, uint64_t position) {
    list.push_back(position);
    if (ask.size() == kMaxAskPositions) flush();
  };
  for (uint64_t position : taken) add(ask.landed, position);
  taken.clear();
  for (auto& [position, waiting] : outstanding) {
    if (waiting.next == Next::kWait) {
      if (!overdue(position, waiting, now)) continue;
      waiting.next = Next::kAskAgain;
      ++counts.asked_again;
    }
    if (waiting.next == Next::kAskAgain) add(ask.landed, position);
    add(waiting.now ? ask.now : ask.want, position);
    waiting.next = Next::kWait;
    waiting.progress = now;
  }
  if (ask.size() > 0) flush();
}

void StreamSource::Impl::check_life(short events, double now) {
  if (!(events & (POLLIN | POLLHUP | POLLERR | POLLNVAL))) return;
  char letter;
  ssize_t got = ::read(options.life_fd, &letter, 1);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  life_open = false;
  if (got > 0) return fail_with(Exit::kProtocol, who() + " wrote more than its handle to the pipe");
  if (!bye) lose("has closed the pipe without BYE", now);
}

// The producer is dead or as good as dead: behind a pipe that is the end, behind a handle file another may come.
void StreamSource::Impl::lose(const std::string& why, double now) {
  if (lost || failure) return;
  std::string text = fmt::format("{} {} (last heard {:.1f} s ago)", who(), why, now - heard);
  if (options.handle_file.empty() || options.rejoin_s <= 0 || bye) return fail_with(Exit::kUnavailable, text);
  lost = true;
  lost_at = now;
  lost_why = text;
  next_reread = now;
  link.reset();
  report(fmt::format("{}; waiting up to {:.0f} s for another at {}", text, options.rejoin_s,
                     options.handle_file.string()));
}

void StreamSource::Impl::try_rejoin(double now) {
  if (now - lost_at > options.rejoin_s) {
    return fail_with(Exit::kUnavailable, fmt::format("{}; no other came within {:.0f} s", lost_why, options.rejoin_s));
  }
  if (now < next_reread) return;
  next_reread = now + kRereadS;
  std::error_code ignored;
  if (!std::filesystem::exists(options.handle_file, ignored)) return;
  Handle next = Handle::parse(read_file(options.handle_file, kMaxHandleBytes), options.handle_file.string());
  if (next.id == handle.id) return;
  adopt(std::move(next));
  lost = false;
  ++counts.rejoined;
  taken.clear();
  for (auto& [position, waiting] : outstanding) waiting = Outstanding{.now = waiting.now};
  open_link(now);
  report(fmt::format("{} took over after {:.1f} s", who(), now - lost_at));
}

std::unique_ptr<StreamSource> StreamSource::connect(std::string_view handle_text, StreamOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  Impl& self = *impl;
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  self.self = fmt::format("{}:{}", host, getpid());
  struct stat info {};
  bool piped = fstat(self.options.life_fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
  if (!piped) self.options.life_fd = -1;  // a handle redirected from a file has no life to watch
  Handle offered = Handle::parse(handle_text, "stream handle");
  try {
    self.adopt(offered);
  } catch (const Error& error) {
    if (self.options.rank == 0) self.refuse(offered, error);  // every rank finds the same
    throw;
  }
  std::unique_ptr<StreamSource> source(new StreamSource(std::move(impl)));
  Deadline deadline = Deadline::after(Seconds(self.options.connect_s));
  self.open_link(monotonic_s());
  self.thread = std::thread([&self] { self.run(); });
  std::unique_lock lock(self.mutex);
  self.changed.wait_for(lock, deadline.left(), [&] { return self.welcomed || self.failure; });
  if (self.failure) throw Error(*self.failure);
  SF_CHECK(self.welcomed, Exit::kUnavailable, "{} did not answer at {} within {:.0f} s; is it still running?",
           self.who(), self.handle.endpoints[0].control, self.options.connect_s);
  return source;
}

StreamSource::StreamSource(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StreamSource::~StreamSource() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->quit = true;
  }
  impl_->wake.ring();
  if (impl_->thread.joinable()) impl_->thread.join();
}

const Contract& StreamSource::contract() const {
  return impl_->contract;
}

void StreamSource::want(std::span<const uint64_t> positions) {
  {
    std::lock_guard lock(impl_->mutex);
    for (uint64_t position : positions) {
      if (!impl_->ready.contains(position)) impl_->outstanding.try_emplace(position);
    }
    if (impl_->outstanding.size() > kMaxQueued) {
      fail(Exit::kSoftware, "{} positions are wanted at once, at most {} can be", impl_->outstanding.size(),
           kMaxQueued);
    }
  }
  impl_->wake.ring();
}

Sample StreamSource::get(uint64_t position, Deadline deadline) {
  Impl& self = *impl_;
  double start = monotonic_s();
  std::unique_lock lock(self.mutex);
  SF_ASSERT(!self.finished);
  auto there = [&] { return self.ready.contains(position); };
  if (!there() && !self.failure) {
    Outstanding& waiting = self.outstanding.try_emplace(position).first->second;
    if (!waiting.now) {
      waiting.now = true;
      if (waiting.next == Next::kWait && !waiting.parts) waiting.next = Next::kAsk;  // urgent from now on
      self.wake.ring();
    }
    self.changed.wait_for(lock, deadline.left(), [&] { return there() || self.failure; });
  }
  self.counts.waited_s += monotonic_s() - start;
  if (!there()) {
    if (self.failure) throw Error(*self.failure);
    fail(Exit::kUnavailable, "position {} did not come within {:.1f} s: {} was last heard {:.1f} s ago and {}",
         position, monotonic_s() - start, self.who(), monotonic_s() - self.heard,
         self.doing.empty() ? "has said nothing yet" : self.doing);
  }
  Sample sample = std::move(self.ready.extract(position).mapped());
  self.held -= sample.bytes();
  self.taken.push_back(position);
  self.wake.ring();
  return sample;
}

void StreamSource::finish() {
  Impl& self = *impl_;
  {
    std::unique_lock lock(self.mutex);
    if (self.finished) return;
    self.finished = true;
    if (!self.failure && !self.lost) {
      self.bye = true;
      self.outstanding.clear();
      self.next_beat = 0;
      self.wake.ring();
      auto limit = Seconds(self.options.finish_s);
      self.changed.wait_for(lock, limit, [&] { return self.bye_acked || self.failure; });
    }
    if (!self.bye_acked) self.report(self.who() + " did not answer BYE");
    self.quit = true;
  }
  self.wake.ring();
  self.thread.join();
}

void StreamSource::refuse(const Error& why) const {
  if (impl_->options.rank != 0) return;
  std::unique_lock lock(impl_->mutex);
  Handle producer = impl_->handle;
  lock.unlock();
  impl_->refuse(producer, why);
}

bool StreamSource::producer_stopping() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->stopping;
}

StreamCounts StreamSource::counts() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->counts;
}

}  // namespace sf::stream
