// SPDX-License-Identifier: Apache-2.0
// The socket thread of a trainer rank: who is there, what came, what is asked.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/fault.h"
#include "stream/client_impl.h"

namespace sf::stream {
namespace {

constexpr int kCorruptLimit = 3;      // times one chunk may come damaged
constexpr uint64_t kBadLimit = 1000;  // messages that are no frames at all
constexpr int kMaxBurst = 64;
constexpr double kQuietBeats = 2;  // heartbeats missed before the handle file is looked at
constexpr uint32_t kHeaderIndex = UINT32_MAX;

// Lets callers in while the socket thread works on what is its own.
class Unlocked {
 public:
  explicit Unlocked(std::unique_lock<std::mutex>& lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() { lock_.lock(); }
  Unlocked(const Unlocked&) = delete;

 private:
  std::unique_lock<std::mutex>& lock_;
};

}  // namespace

// What of a handle must hold before we talk to its producer.
void StreamSource::Impl::adopt(Link& link, Handle next) {
  SF_CHECK(next.endpoints.size() == 1, Exit::kProtocol, "endpoints: wanted 1 producer, found {}",
           next.endpoints.size());
  if (!fault("stream.wrong_contract")) {
    auto unmet = options.wanted.unmet_by(next.contract);
    SF_CHECK(!unmet, Exit::kProtocol, "contract of {} differs in {}", next.who(), unmet.value_or(""));
    if (contracted) {
      auto changed_field = contract.difference(next.contract);
      SF_CHECK(!changed_field, Exit::kProtocol, "{} has another contract than those before it: {}", next.who(),
               changed_field.value_or(""));
    }
  }
  if (next.code != options.code) {
    report(fmt::format("code version: ours {}, of {} {}", options.code, next.who(), next.code));
  }
  if (!contracted) {
    contract = next.contract;
    options.marks.bound = largest_sample(contract);
    asking = Asking(options.marks, options.retry_s);
    pool.emplace(options.marks.cap ? options.marks.cap : options.marks.high + options.marks.bound);
    contracted = true;
  }
  link.handle = std::move(next);
}

Hello StreamSource::Impl::hello_to(const Handle& producer) const {
  return {kWireVersion, options.rank,   options.world, static_cast<int64_t>(options.marks.high),
          options.code, producer.token, producer.id,   self};
}

void StreamSource::Impl::refuse_all(const Error& why) const {
  if (options.rank != 0) return;  // every rank finds the same
  for (const Link& link : links)
    if (link.handle) stream::refuse(*link.handle, hello_to(*link.handle), why);
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
      if (failure)
        for (Link& link : links) link.close();
    }
    for (Link& link : links) link.close();
  } catch (const Error& error) {
    std::lock_guard lock(mutex);
    fail_with(error.code(), error.what());
  } catch (const std::exception& error) {
    std::lock_guard lock(mutex);
    fail_with(Exit::kSoftware, fmt::format("the socket thread failed: {}", error.what()));
  }
}

bool StreamSource::Impl::any_channel() const {
  return std::any_of(links.begin(), links.end(), [](const Link& link) { return link.channel != nullptr; });
}

void StreamSource::Impl::turn() {
  std::vector<const Socket*> sockets;
  for (Link& link : links)
    if (link.channel) sockets.insert(sockets.end(), {&link.channel->control, &link.channel->data});
  bool all_there = sockets.size() == 2 * links.size();
  int timeout = static_cast<int>(std::min(options.heartbeat_s * 500, all_there ? 1e9 : 100)) + 1;
  short life = wait(sockets, wake.fd(), life_open ? options.life_fd : -1, POLLIN, timeout);
  wake.clear();
  double now = monotonic_s();
  std::lock_guard lock(turning);
  if (failure) return;
  // After we ourselves were suspended (Ctrl-Z stops both sides), silence says nothing about the producers.
  double gap = now - last_turn;
  if (gap > options.silent_s / 2 + options.heartbeat_s)
    for (Link& link : links) link.heard += gap;
  last_turn = now;
  for (size_t i = 0; i < links.size() && !failure; ++i) {
    if (links[i].channel) pump(i, links[i].channel->control, now);
    if (links[i].channel) pump(i, links[i].channel->data, now);  // the first may have found the producer lost
  }
  check_life(life, now);
  for (size_t i = 0; i < links.size() && !failure; ++i) tend(i, now);
  if (failure) return;
  if (!any_channel() && joined && !bye && now - alone_since > options.rejoin_s)
    return fail_with(Exit::kUnavailable, fmt::format("{}; no other came within {:.0f} s", alone_why, options.rejoin_s));
  send_asks(now);
  if (options.explain_s > 0 && options.rank == 0 && joined && now >= next_line && !bye) {
    next_line = now + options.explain_s;
    report(explain(seen(now), 1, options.world));
  }
}

// A producer that is not there may come; one that is there is kept awake, or found silent.
void StreamSource::Impl::tend(size_t i, double now) {
  Link& link = links[i];
  // One that was killed is not waited for until it counts as silent, once another has published its handle.
  bool quiet = link.live() && options.rejoin_s > 0 && now - link.heard > kQuietBeats * options.heartbeat_s;
  if ((!link.live() || quiet) && !bye) {
    if (std::optional<Handle> next = link.another(now)) {
      if (quiet) lose(i, "gave its place to another", now);
      if (failure) return;
      bool took_over = link.lost;
      adopt(link, std::move(*next));
      link.open(options.rank, now);
      ++counts.rejoined;
      report(took_over ? fmt::format("{} took over after {:.1f} s", link.who(), now - link.lost_at)
                       : link.who() + " is there");
      link.lost = false;
    }
  }
  if (link.channel && now >= link.next_beat) beat(i, now);
  bool others = std::any_of(links.begin(), links.end(), [](const Link& one) { return one.live() && !one.stopping; });
  if (link.live() && link.stopping && !link.bye && others && asking.idle(static_cast<int>(i))) {
    link.bye = true;
    link.next_beat = 0;
  }
}

void StreamSource::Impl::pump(size_t i, Socket& socket, double now) {
  for (int count = 0; count < kMaxBurst && !failure && links[i].channel; ++count) {
    try {
      auto message = socket.receive();
      if (!message) return;
      links[i].heard = now;
      on_message(i, *message, now);
    } catch (const Error& error) {
      std::string who = links[i].who();
      if (error.code() == Exit::kProtocol) return fail_with(error.code(), fmt::format("{}: {}", who, error.what()));
      if (error.code() != Exit::kData) throw;
      if (counts.bad_messages++ == 0) report(fmt::format("a message of {} was refused: {}", who, error.what()));
      if (counts.bad_messages > kBadLimit) {
        return fail_with(Exit::kProtocol,
                         fmt::format("{} sent {} damaged messages, the last: {}", who, kBadLimit, error.what()));
      }
    }
  }
}

void StreamSource::Impl::on_message(size_t i, const Received& message, double now) {
  Link& link = links[i];
  switch (message.header.kind) {
    case Kind::kWelcome:
      return on_welcome(i, message);
    case Kind::kRefused:
    case Kind::kFailed:
      return on_refused(i, message);
    case Kind::kAlive:
      return on_alive(i, json_payload(message.header, message.payload));
    case Kind::kWho:
      link.welcomed = false;
      link.next_beat = 0;
      return;
    case Kind::kByeAck:
      link.bye_acked = true;
      if (!bye) leave(i);
      changed.notify_all();
      return;
    case Kind::kSample:
    case Kind::kChunk:
      return on_data(i, message, now);
    default:
      fail(Exit::kData, "a producer sent a frame of kind {}", static_cast<int>(message.header.kind));
  }
}

void StreamSource::Impl::on_alive(size_t i, const Json& said) {
  Link& link = links[i];
  if (said.get_bool("stopping", false) && !link.stopping) {
    report(link.who() + " was told to stop");
    link.stopping = true;
    asking.stop(static_cast<int>(i));
  }
  const Json* position = said.find("computing");
  std::optional<uint64_t> computing;
  if (position && position->is_int()) computing = static_cast<uint64_t>(position->as_int());
  link.doing = computing ? fmt::format("computes position {} since {:.1f} s", *computing, said.get_double("for_s", 0))
                         : "computes nothing";
  link.produced = static_cast<uint64_t>(std::max<int64_t>(0, said.get_int("produced", 0)));
  link.busy_s = said.get_double("busy_s", 0);
  if (link.welcomed)
    asking.says(static_cast<int>(i), computing, static_cast<uint64_t>(std::max<int64_t>(0, said.get_int("queued", 0))));
}

void StreamSource::Impl::on_welcome(size_t i, const Received& message) {
  Link& link = links[i];
  Json json = json_payload(message.header, message.payload);
  std::string digest = json.at("contract_digest").as_string(), id = json.at("id").as_string();
  if (digest != contract.digest() || id != link.handle->id) {
    return fail_with(Exit::kProtocol,
                     fmt::format("{} is not the one of the handle (id: wanted {}, found {}); is the handle old?",
                                 link.who(), link.handle->id, id));
  }
  link.welcomed = true;
  asking.join(static_cast<int>(i));
  if (link.stopping) asking.stop(static_cast<int>(i));
  if (!joined) began = monotonic_s(), next_line = began + options.explain_s;
  joined = true;
  changed.notify_all();
}

void StreamSource::Impl::on_refused(size_t i, const Received& message) {
  Json json = json_payload(message.header, message.payload);
  int64_t code = json.get_int("code", static_cast<int64_t>(Exit::kUnavailable));
  std::string text = json.get_string("message", "no reason given").substr(0, kMaxReasonBytes);
  if (message.header.kind == Kind::kRefused) {
    // Only what is wrong with us keeps its status; what the producer suffers is, here, an unavailable peer.
    // Behind a handle file this may be the word of another that came to an old address, or of one that has not yet seen
    // a rank before us die: hello is said again, until a new handle comes or the deadline passes.
    if (!links[i].file.empty() && options.rejoin_s > 0 && code != static_cast<int64_t>(Exit::kProtocol)) {
      if (links[i].doing != text) report(fmt::format("{} refused us: {}", links[i].who(), text));
      links[i].doing = text;
      links[i].welcomed = false;
      return;
    }
    bool ours = code == static_cast<int64_t>(Exit::kProtocol) || code == static_cast<int64_t>(Exit::kNoPermission);
    return fail_with(ours ? static_cast<Exit>(code) : Exit::kUnavailable,
                     fmt::format("{} refused us: {}", links[i].who(), text));
  }
  lose(i, fmt::format("ended with status {}: {}", code, text), monotonic_s());
}

void StreamSource::Impl::on_corrupt(size_t i, const FrameHeader& header, Parts& part, const std::string& why) {
  ++counts.corrupt;
  bool head = header.kind == Kind::kSample;
  if (++part.corrupt[head ? kHeaderIndex : header.index] >= kCorruptLimit) {
    return fail_with(Exit::kProtocol, fmt::format("{} of position {} from {} came damaged {} times: {}",
                                                  head ? "the header" : fmt::format("chunk {}", header.index),
                                                  header.position, links[i].who(), kCorruptLimit, why));
  }
  asking.damaged(static_cast<int>(i), header.position);
}

// False: it came before. kData: it is damaged. Hashing and copying are most of what this thread does, and `part` is its
// own: callers need not wait meanwhile.
bool StreamSource::Impl::assemble(const Received& message, Parts& part) {
  Unlocked callers_go_on(turning);
  const FrameHeader& header = message.header;
  if (header.kind == Kind::kChunk) {
    Assembler::Got got = part.assembler->put(header, message.payload);
    SF_CHECK(got != Assembler::Got::kCorrupt, Exit::kData, "its length or XXH3 differs");
    return got == Assembler::Got::kNew;
  }
  if (part.assembler) return false;
  SF_CHECK(payload_intact(header, message.payload), Exit::kData, "its XXH3 differs");
  part.assembler.emplace(Frame{header, message.payload}, kMaxSampleBytes, &*pool);
  return true;
}

void StreamSource::Impl::on_data(size_t i, const Received& message, double now) {
  const FrameHeader& header = message.header;
  if (!asking.expects(static_cast<int>(i), header.position)) {
    if (header.kind == Kind::kSample) asking.late();
    return;
  }
  Parts& part = parts[{header.position, static_cast<int>(i)}];
  asking.progress(static_cast<int>(i), header.position, now);
  if (header.kind == Kind::kChunk && !part.assembler) return;  // its header was damaged: all of it is asked again
  try {
    counts.repeated += !assemble(message, part);
  } catch (const Error& error) {
    if (error.code() != Exit::kData) throw;
    return on_corrupt(i, header, part, error.what());
  }
  if (part.assembler->complete()) complete(i, header.position, part.assembler->take(), now);
}

void StreamSource::Impl::complete(size_t i, uint64_t position, Sample sample, double now) {
  for (size_t k = 0; k < links.size(); ++k) parts.erase({position, static_cast<int>(k)});
  uint64_t row = place_of(position, contract.rows, contract.order_seed).row;
  if (sample.row != row) {
    return fail_with(Exit::kProtocol,
                     fmt::format("position {} is row {}, {} sent row {}", position, row, links[i].who(), sample.row));
  }
  if (!asking.answered(static_cast<int>(i), position, sample.bytes(), sample.void_reason.has_value(), now)) return;
  ++counts.received;
  counts.received_bytes += sample.bytes();
  counts.peak_held = std::max(counts.peak_held, asking.held());
  ready.emplace(position, std::move(sample));
  changed.notify_all();
}

void StreamSource::Impl::beat(size_t i, double now) {
  Link& link = links[i];
  link.next_beat = now + options.heartbeat_s;
  if (now - link.heard > options.silent_s)
    return lose(i, fmt::format("has been silent for {:.1f} s", now - link.heard), now);
  if (bye || link.bye) {
    link.channel->control.send_text("", Kind::kBye, "{}");
  } else if (link.welcomed) {
    if (!fault("stream.mute_trainer")) link.channel->control.send_text("", Kind::kAlive, "{}");
  } else {
    link.channel->control.send_text("", Kind::kHello, hello_to(*link.handle).to_json().dump());
  }
}

void StreamSource::Impl::send_asks(double now) {
  std::vector<Ask> asks(links.size());
  auto flush = [&](size_t i) {
    std::vector<std::byte> payload = encode(asks[i]);
    if (links[i].live()) links[i].channel->data.send("", {header_for(Kind::kAsk, 0, 0, payload), payload});
    asks[i] = {};
  };
  auto add = [&](size_t i, std::vector<uint64_t>& list, uint64_t position) {
    list.push_back(position);
    if (asks[i].size() == kMaxAskPositions) flush(i);
  };
  for (size_t i = 0; i < links.size(); ++i) {
    for (uint64_t position : landed[i]) add(i, asks[i].landed, position);
    landed[i].clear();
  }
  if (!bye) {
    for (const Asking::Request& request : asking.requests(now)) {
      auto i = static_cast<size_t>(request.producer);
      if (request.anew) add(i, asks[i].landed, request.position);
      add(i, request.now ? asks[i].now : asks[i].want, request.position);
    }
  }
  for (size_t i = 0; i < links.size(); ++i)
    if (asks[i].size() > 0) flush(i);
}

void StreamSource::Impl::check_life(short events, double now) {
  if (!(events & (POLLIN | POLLHUP | POLLERR | POLLNVAL))) return;
  char letter;
  ssize_t got = ::read(options.life_fd, &letter, 1);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  life_open = false;
  for (size_t i = 0; i < links.size(); ++i) {
    if (!links[i].file.empty()) continue;
    if (got > 0) return fail_with(Exit::kProtocol, links[i].who() + " wrote more than its handle to the pipe");
    if (!bye && !links[i].bye) lose(i, "has closed the pipe without BYE", now);
  }
}

// The producer said good-bye and is asked no more.
void StreamSource::Impl::leave(size_t i) {
  asking.lose(static_cast<int>(i));
  landed[i].clear();
  links[i].close();
}

// The producer is dead or as good as dead. What it owes is asked of the others; without any, behind a pipe that is the
// end, behind a handle file another may come.
void StreamSource::Impl::lose(size_t i, const std::string& why, double now) {
  Link& link = links[i];
  if (!link.channel || failure) return;
  std::string text = fmt::format("{} {} (last heard {:.1f} s ago)", link.who(), why, now - link.heard);
  uint64_t owed = asking.lose(static_cast<int>(i));
  landed[i].clear();
  std::erase_if(parts, [&](const auto& part) { return part.first.second == static_cast<int>(i); });
  link.close();
  link.lost = true;
  link.lost_at = now;
  link.next_reread = now;
  if (any_channel()) return report(fmt::format("{}; {} positions are asked of others", text, owed));
  bool by_file = std::any_of(links.begin(), links.end(), [](const Link& one) { return !one.file.empty(); });
  if (!by_file || options.rejoin_s <= 0 || bye) return fail_with(Exit::kUnavailable, text);
  alone_since = now;
  alone_why = text;
  report(fmt::format("{}; waiting up to {:.0f} s for another", text, options.rejoin_s));
}

std::string StreamSource::Impl::state_of_links(double now) const {
  std::string text;
  for (const Link& link : links) {
    if (!text.empty()) text += "; ";
    std::string at = link.welcomed || !link.handle ? "" : " at " + link.handle->endpoints[0].control;
    text += link.channel ? fmt::format("{}{} was last heard {:.1f} s ago and {}", link.who(), at, now - link.heard,
                                       link.doing.empty() ? "has said nothing yet" : link.doing)
                         : link.who() + " is not there";
  }
  return text;
}

StreamCounts StreamSource::Impl::seen(double now) const {
  StreamCounts all = counts;
  all.tally = asking.tally();
  all.elapsed_s = joined ? now - began : 0;
  for (size_t i = 0; i < links.size(); ++i) {
    all.producers.push_back({links[i].who(), asking.tally(static_cast<int>(i))});
    if (links[i].busy_s > 0) all.supply_per_s += static_cast<double>(links[i].produced) / links[i].busy_s;
  }
  return all;
}

}  // namespace sf::stream
