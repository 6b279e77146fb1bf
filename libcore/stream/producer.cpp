// SPDX-License-Identifier: Apache-2.0
#include "stream/producer.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "base/fault.h"
#include "stream/flow.h"
#include "stream/frame.h"
#include "stream/roster.h"
#include "stream/row_cache.h"
#include "stream/socket.h"

namespace sf::stream {
namespace {

constexpr int kLingerMs = 1000;        // for the last words of the control socket
constexpr double kReaderGraceS = 0.2;  // messages of a reader that just died may still be on their way
constexpr int kMaxBurst = 256;         // messages handled before heartbeats get their turn

// Where an address of every interface is found from elsewhere.
std::string reachable(const std::string& bound, const std::string& host) {
  for (const char* every : {"tcp://0.0.0.0:", "tcp://[::]:"})
    if (bound.starts_with(every)) return fmt::format("tcp://{}:{}", host, bound.substr(std::string(every).size()));
  return bound;
}

}  // namespace

Exit exit_of(Ending ending) {
  if (ending == Ending::kBye) return Exit::kOk;
  return ending == Ending::kStoppedUnasked ? Exit::kAgain : Exit::kUnavailable;
}

std::string message_of(Ending ending) {
  switch (ending) {
    case Ending::kBye:
      return "every trainer rank said BYE";
    case Ending::kStopDeadline:
      return "told to stop, and no BYE came before the deadline";
    case Ending::kStoppedUnasked:
      return "told to stop before any trainer joined";
    case Ending::kReaderGone:
      return "the reader of the pipe is gone without BYE";
    case Ending::kTrainersGone:
      return "no trainer rank is left, and not all of them said BYE";
    case Ending::kNobodyCame:
      return "no trainer joined before the deadline";
  }
  return "";
}

struct Producer::Impl {
  Impl(ProducerOptions given, ComputeMany callback, size_t at_once)
      : options(std::move(given)),
        compute(std::move(callback)),
        most(at_once),
        cache(options.cache_bytes),
        data(sockets.router(0)),
        control(sockets.router(kLingerMs)),
        started(monotonic_s()) {}

  ProducerOptions options;
  ComputeMany compute;
  size_t most;  // positions that are computed together
  Handle handle;

  // Guarded by `mutex`; the thread of serve() and the socket thread meet here.
  mutable std::mutex mutex;
  std::condition_variable changed;
  Flow flow;
  RowCache cache;
  ProducerCounts counts;
  struct Outgoing {
    std::string peer;
    std::shared_ptr<const Sample> sample;
  };
  std::deque<Outgoing> outbox;
  std::deque<std::string> reports;
  std::optional<Ending> ending;
  std::optional<Error> refusal;           // why the trainer behind the pipe will not train from us
  std::optional<std::string> last_words;  // JSON of kFailed
  std::optional<uint64_t> computing;
  double computing_since = 0;
  bool stopping = false, quit = false, joined = false;

  // Owned by the socket thread once it runs.
  Sockets sockets;
  Socket data, control;
  Roster roster;
  double started, joined_at = 0, next_line = 0, next_sweep = 0, last_turn = monotonic_s();
  std::optional<double> reader_gone_at;

  Wake wake;
  std::thread thread;

  void open();
  void run();
  void say(std::string text) { reports.push_back(std::move(text)); }
  void forgive(double now);
  void pump(Socket& socket, double now);
  void on_message(const Received& message, double now);
  void on_hello(const Received& message, double now);
  void on_refusal(const Received& message);
  void on_ask(const Received& message);
  void answer_alive(const std::string& peer, double now);
  void send_sample(const Outgoing& item);
  void send_waiting();
  void left(const std::string& peer, const std::string& why, double now);
  void sweep(double now);
  void judge(double now);
  std::vector<uint64_t> serve_kept(const std::vector<uint64_t>& positions);
  void produce(std::span<const uint64_t> positions);
  void check(const Sample& sample, uint64_t position) const;
  void deliver(uint64_t position, std::shared_ptr<const Sample> sample, bool kept);
  Ending finish(Ending how);
  void end_with(Exit code, const std::string& message);
  std::string explain(double now) const;
  void flush_reports();
};

void Producer::Impl::open() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  handle.version = kWireVersion;
  handle.id = random_hex(8);
  handle.token = random_hex(16);
  handle.contract = options.contract;
  handle.pid = getpid();
  handle.host = host;
  handle.code = options.code;
  if ((options.encrypt || !is_loopback(options.bind)) && !fault("stream.never_encrypt")) {
    KeyPair own = make_key_pair();
    handle.encryption = Encryption{own.open, make_key_pair()};
    sockets.admit({handle.encryption->client.open});
    for (Socket* socket : {&data, &control}) socket->encrypt_as_server(own);
  }
  handle.endpoints.push_back({reachable(data.bind(options.bind), host), reachable(control.bind(options.bind), host)});
  thread = std::thread([this] { run(); });
}

void Producer::Impl::run() {
  try {
    for (;;) {
      int life = reader_gone_at ? -1 : options.life_fd;
      const Socket* both[] = {&control, &data};
      short seen = wait(both, wake.fd(), life, 0, static_cast<int>(options.heartbeat_s * 500) + 1);
      wake.clear();
      double now = monotonic_s();
      std::unique_lock lock(mutex);
      forgive(now);
      if (seen & (POLLERR | POLLHUP | POLLNVAL)) reader_gone_at = now;
      pump(control, now);
      pump(data, now);
      lock.unlock();
      send_waiting();
      lock.lock();
      if (now >= next_sweep) {
        next_sweep = now + options.heartbeat_s / 2;
        sweep(now);
      }
      judge(now);
      if (!quit) continue;
      if (last_words) {
        for (const auto& [peer, member] : roster.members()) {
          if (member.state == Roster::State::kLive) control.send_text(peer, Kind::kFailed, *last_words);
        }
      }
      return;
    }
  } catch (const std::exception& error) {
    std::lock_guard lock(mutex);
    say(fmt::format("the socket thread failed: {}", error.what()));
    ending = Ending::kTrainersGone;
    changed.notify_all();
  }
}

// After we ourselves were suspended (Ctrl-Z stops both sides), silence says nothing about the ranks.
void Producer::Impl::forgive(double now) {
  double gap = now - last_turn;
  last_turn = now;
  if (gap < options.silent_s / 2 + options.heartbeat_s) return;
  for (const auto& [peer, member] : roster.members()) roster.find(peer)->heard += gap;
}

void Producer::Impl::pump(Socket& socket, double now) {
  for (int i = 0; i < kMaxBurst; ++i) {
    try {
      auto message = socket.receive();
      if (!message) return;
      on_message(*message, now);
    } catch (const Error& error) {
      if (error.code() != Exit::kData && error.code() != Exit::kProtocol) throw;
      if (counts.bad_messages++ < 3) say(fmt::format("a message was refused: {}", error.what()));
    }
  }
}

void Producer::Impl::on_message(const Received& message, double now) {
  if (message.header.kind == Kind::kHello) return on_hello(message, now);
  Roster::Member* member = roster.find(message.peer);
  bool known = member && member->state != Roster::State::kSilent;
  if (known) member->heard = now;
  switch (message.header.kind) {
    case Kind::kAlive:
      return known ? answer_alive(message.peer, now) : void(control.send_text(message.peer, Kind::kWho, "{}"));
    case Kind::kBye:
      if (member && member->state != Roster::State::kBye) {
        roster.leave(message.peer, Roster::State::kBye, now);
        flow.drop(message.peer);
        say(fmt::format("rank {} ({}) said BYE", member->rank, member->name));
      }
      control.send_text(message.peer, Kind::kByeAck, "{}");
      return;
    case Kind::kRefused:
      return on_refusal(message);
    case Kind::kAsk:
      if (known && flow.knows(message.peer)) return on_ask(message);
      control.send_text(message.peer, Kind::kWho, "{}");
      return;
    default:
      fail(Exit::kData, "a trainer sent a frame of kind {}", static_cast<int>(message.header.kind));
  }
}

void Producer::Impl::on_hello(const Received& message, double now) {
  auto refuse = [&](Exit code, const std::string& reason) {
    Json json = Json::object();
    json.set("code", static_cast<int>(code)).set("message", reason);
    control.send_text(message.peer, Kind::kRefused, json.dump());
    say("a trainer was refused: " + reason);
  };
  Hello hello = Hello::from_json(json_payload(message.header, message.payload));
  if (hello.token != handle.token) return refuse(Exit::kNoPermission, "token: the handle is not of this stream");
  if (hello.id != handle.id)
    return refuse(Exit::kProtocol, fmt::format("id: wanted {}, found {}", handle.id, hello.id));
  // Whoever occupies the rank but is no longer connected has left: a restarted trainer need not wait for silent_s.
  for (auto& [peer, member] : std::map(roster.members())) {
    bool rival = member.state == Roster::State::kLive && peer != message.peer;
    if (rival && !control.send_text(peer, Kind::kAlive, "{}")) left(peer, "is no longer connected", now);
  }
  std::vector<std::string> replaced;
  bool again = roster.find(message.peer) != nullptr;
  if (auto reason = roster.join(message.peer, hello, now, replaced)) return refuse(Exit::kUnavailable, *reason);
  for (const std::string& peer : replaced) flow.drop(peer);
  if (!joined) joined_at = now, next_line = now + options.explain_s;
  joined = true;
  flow.join(message.peer, std::min(options.credit_bytes, static_cast<size_t>(hello.credit_bytes)));
  say(fmt::format("rank {} of {} ({}) {}", hello.rank, hello.world, hello.name, again ? "is back" : "joined"));
  if (hello.code != options.code) {
    say(fmt::format("code version: ours {}, of rank {} {}", options.code, hello.rank, hello.code));
  }
  Json json = Json::object();
  json.set("wire", kWireVersion).set("id", handle.id).set("contract_digest", handle.contract.digest());
  json.set("code", options.code);
  control.send_text(message.peer, Kind::kWelcome, json.dump());
}

// Only whoever holds the handle is heard: others must not end a stream.
void Producer::Impl::on_refusal(const Received& message) {
  Json json = json_payload(message.header, message.payload);
  Hello from = Hello::from_json(json);
  SF_CHECK(from.token == handle.token && from.id == handle.id, Exit::kData, "a refusal by {}, who holds another handle",
           from.name);
  std::string text = fmt::format("trainer rank {} ({}) refused this stream: {}", from.rank, from.name,
                                 json.get_string("message", "no reason given").substr(0, kMaxReasonBytes));
  if (options.life_fd < 0) {
    say(text);
  } else if (!refusal && !fault("stream.ignore_refusal")) {
    refusal.emplace(Exit::kProtocol, text);
    changed.notify_all();
  }
  control.send_text(message.peer, Kind::kByeAck, "{}");
}

void Producer::Impl::on_ask(const Received& message) {
  SF_CHECK(payload_intact(message.header, message.payload), Exit::kData, "damaged ask");
  flow.ask(message.peer, decode_ask(message.payload));
  changed.notify_all();
}

void Producer::Impl::answer_alive(const std::string& peer, double now) {
  if (fault("stream.mute_heartbeat")) return;
  Json json = Json::object();
  json.set("computing", computing ? Json(*computing) : Json());
  json.set("for_s", computing ? now - computing_since : 0.0);
  json.set("queued", static_cast<uint64_t>(flow.queued(peer))).set("stopping", stopping);
  json.set("produced", counts.computed + counts.cached).set("busy_s", counts.busy_s);
  control.send_text(peer, Kind::kAlive, json.dump());
}

void Producer::Impl::send_sample(const Outgoing& item) {
  for_each_frame(*item.sample, [&](const Frame& frame) {
    if (fault("stream.flip_byte") && frame.header.kind == Kind::kChunk) {
      std::vector<std::byte> damaged(frame.payload.begin(), frame.payload.end());
      damaged[damaged.size() / 2] ^= std::byte{1};
      data.send(item.peer, {frame.header, damaged});
      return;
    }
    // Chunks are sent from the sample's own memory, which the shared pointer keeps alive.
    std::shared_ptr<const void> keep;
    if (frame.header.kind == Kind::kChunk) keep = item.sample;
    data.send(item.peer, frame, std::move(keep));
  });
}

void Producer::Impl::send_waiting() {
  for (;;) {
    std::unique_lock lock(mutex);
    if (outbox.empty()) return;
    Outgoing item = std::move(outbox.front());
    outbox.pop_front();
    lock.unlock();
    send_sample(item);
  }
}

void Producer::Impl::left(const std::string& peer, const std::string& why, double now) {
  Roster::Member* member = roster.find(peer);
  say(fmt::format("trainer rank {} ({}) {}; {} positions it asked for are dropped", member->rank, member->name, why,
                  flow.queued(peer)));
  flow.drop(peer);
  roster.leave(peer, Roster::State::kSilent, now);
}

void Producer::Impl::sweep(double now) {
  for (auto& [peer, member] : std::map(roster.members())) {
    if (member.state != Roster::State::kLive) continue;
    double quiet = now - member.heard;
    if (quiet > options.silent_s) {
      left(peer, fmt::format("has been silent for {:.1f} s", quiet), now);
    } else if (quiet > 3 * options.heartbeat_s && !control.send_text(peer, Kind::kAlive, "{}")) {
      left(peer, fmt::format("is no longer connected, last heard {:.1f} s ago", quiet), now);
    }
  }
}

void Producer::Impl::judge(double now) {
  if (ending) return;
  if (roster.all_bye()) {
    ending = Ending::kBye;
  } else if (reader_gone_at && now > *reader_gone_at + (roster.any_bye() ? options.silent_s : kReaderGraceS)) {
    ending = Ending::kReaderGone;
  } else if (roster.empty() && now > started + options.join_s) {
    ending = Ending::kNobodyCame;
  } else if (!reader_gone_at && !roster.empty() && !roster.any_live() && now > roster.last_left() + options.rejoin_s) {
    // Ranks that never came count as gone only after the time a first rank is given.
    if (!roster.missing().empty() || now > started + options.join_s) ending = Ending::kTrainersGone;
  }
  if (ending) changed.notify_all();
}

// Those whose rows are in the cache are answered at once; the others are left.
std::vector<uint64_t> Producer::Impl::serve_kept(const std::vector<uint64_t>& positions) {
  std::vector<uint64_t> left;
  for (uint64_t position : positions) {
    std::shared_ptr<const Sample> found;
    {
      std::lock_guard lock(mutex);
      found = cache.find(place_of(position, options.contract.rows, options.contract.order_seed).row);
    }
    if (!found || fault("stream.duplicate")) {
      left.push_back(position);
      continue;
    }
    auto stamped = std::make_shared<Sample>(*found);  // shares the tensors' bytes
    stamped->position = position;
    deliver(position, std::move(stamped), true);
  }
  return left;
}

void Producer::Impl::check(const Sample& sample, uint64_t position) const {
  const uint64_t row = place_of(position, options.contract.rows, options.contract.order_seed).row;
  SF_CHECK(sample.row == row, Exit::kSoftware, "position {} is row {}, the computed sample says row {}", position, row,
           sample.row);
  sample_header(sample);  // its limits are checked here, where the error can still name the row
}

void Producer::Impl::produce(std::span<const uint64_t> positions) {
  const double start = monotonic_s();
  {
    std::lock_guard lock(mutex);
    computing = positions.front();
    computing_since = start;
  }
  std::vector<Sample> samples = compute(positions);
  SF_CHECK(!samples.empty() && samples.size() <= positions.size(), Exit::kSoftware,
           "{} samples were computed of {} positions", samples.size(), positions.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].position = positions[i];
    check(samples[i], positions[i]);
    deliver(positions[i], std::make_shared<Sample>(std::move(samples[i])), false);
  }
  std::lock_guard lock(mutex);
  computing.reset();
  counts.busy_s += monotonic_s() - start;
}

void Producer::Impl::deliver(uint64_t position, std::shared_ptr<const Sample> sample, bool kept) {
  std::lock_guard lock(mutex);
  ++(kept ? counts.cached : counts.computed);
  if (!kept) cache.put(sample);
  for (const std::string& peer : flow.serve(position, sample->bytes())) {
    outbox.push_back({peer, sample});
    ++counts.sent;
    counts.sent_bytes += sample->bytes();
    counts.voids += sample->void_reason.has_value();
    counts.peak_in_flight = std::max(counts.peak_in_flight, flow.in_flight(peer));
  }
  wake.ring();
}

std::string Producer::Impl::explain(double now) const {
  double elapsed = joined ? now - joined_at : 0, busy = elapsed > 0 ? std::min(1.0, counts.busy_s / elapsed) : 0;
  uint64_t made = counts.computed + counts.cached;
  return fmt::format(
      "pipe: produced {} ({} from the cache), sent {} ({} void, {:.1f} MiB), in flight {:.1f} MiB, {} queued; makes "
      "{:.1f}/s, asked for {:.1f}/s: {} ({:.0f} % busy)",
      made, counts.cached, counts.sent, counts.voids, static_cast<double>(counts.sent_bytes) / 1048576.0,
      static_cast<double>(flow.in_flight()) / 1048576.0, flow.queued(),
      counts.busy_s > 0 ? static_cast<double>(made) / counts.busy_s : 0,
      elapsed > 0 ? static_cast<double>(made) / elapsed : 0,
      busy > 0.9 ? "this producer limits the trainers" : "the trainers limit this producer", 100 * busy);
}

void Producer::Impl::flush_reports() {
  std::deque<std::string> lines;
  {
    std::lock_guard lock(mutex);
    double now = monotonic_s();
    if (options.explain_s > 0 && joined && now >= next_line) {
      next_line = now + options.explain_s;
      say(explain(now));
    }
    lines.swap(reports);
  }
  if (!options.report) return;
  for (const std::string& line : lines) options.report(line);
}

void Producer::Impl::end_with(Exit code, const std::string& message) {
  {
    std::lock_guard lock(mutex);
    if (code != Exit::kOk) {
      Json json = Json::object();
      json.set("code", static_cast<int>(code)).set("message", message.substr(0, kMaxReasonBytes));
      last_words = json.dump();
    }
    quit = true;
  }
  wake.ring();
  if (thread.joinable()) thread.join();
}

Ending Producer::Impl::finish(Ending how) {
  end_with(exit_of(how), message_of(how));
  flush_reports();
  return how;
}

Producer::Producer(ProducerOptions options, ComputeMany compute, size_t most)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(compute), most)) {
  impl_->open();
}

Producer::Producer(ProducerOptions options, Compute compute)
    : Producer(
          std::move(options),
          [one = std::move(compute)](std::span<const uint64_t> positions) {
            std::vector<Sample> samples;
            samples.push_back(one(positions.front()));
            return samples;
          },
          1) {}

Producer::~Producer() {
  if (impl_) impl_->end_with(Exit::kUnavailable, "the producer was shut down");
}

const Handle& Producer::handle() const {
  return impl_->handle;
}

ProducerCounts Producer::counts() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->counts;
}

std::string Producer::explain() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->explain(monotonic_s());
}

Ending Producer::serve(const std::function<bool()>& stop) {
  Impl& self = *impl_;
  std::optional<Deadline> stop_deadline;
  try {
    for (;;) {
      self.flush_reports();
      if (!stop_deadline && stop()) stop_deadline = Deadline::after(Seconds(self.options.stop_s));
      std::vector<uint64_t> positions;
      {
        std::unique_lock lock(self.mutex);
        self.stopping = stop_deadline.has_value();
        if (self.refusal) throw Error(*self.refusal);
        // Told to stop before anybody joined: nothing was asked, nobody is waited for.
        if (!self.ending && stop_deadline && (stop_deadline->passed() || !self.joined))
          self.ending = self.joined ? Ending::kStopDeadline : Ending::kStoppedUnasked;
        if (!self.ending && (positions = self.flow.next(self.most)).empty()) {
          self.changed.wait_for(lock, std::chrono::milliseconds(20));
          continue;
        }
      }
      if (positions.empty()) break;
      if (positions = self.serve_kept(positions); !positions.empty()) self.produce(positions);
    }
  } catch (const Error& error) {
    self.end_with(error.code(), error.what());
    self.flush_reports();
    throw;
  } catch (const std::exception& error) {
    self.end_with(Exit::kSoftware, error.what());
    throw;
  }
  return self.finish(*self.ending);
}

}  // namespace sf::stream
