// SPDX-License-Identifier: Apache-2.0
// The running meeting: one thread a rank that moves lines of JSON between the connections and the board.
#include "comm/meeting.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/fault.h"
#include "base/json.h"
#include "comm/socket.h"

namespace sf::comm {
namespace {

constexpr Seconds kTick{0.1};
constexpr double kNewsEveryS = 0.25;
// A line carries a value or the state of all ranks; more is not ours.
constexpr size_t kLongestLine = size_t{1} << 20;
constexpr size_t kMostUnsent = size_t{64} << 20;
constexpr Seconds kLastWords{1.0};
constexpr Seconds kDrain{0.2};

std::string hex(const std::vector<uint8_t>& value) {
  std::string text;
  for (uint8_t byte : value) text += fmt::format("{:02x}", byte);
  return text;
}

std::vector<uint8_t> from_hex(const std::string& text) {
  auto digit = [&](char c) {
    SF_CHECK((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'), Exit::kProtocol, "not a value: {:.40}", text);
    return static_cast<uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  };
  SF_CHECK(text.size() % 2 == 0, Exit::kProtocol, "half a byte: {:.40}", text);
  std::vector<uint8_t> value;
  for (size_t i = 0; i < text.size(); i += 2)
    value.push_back(static_cast<uint8_t>(digit(text[i]) * 16 + digit(text[i + 1])));
  return value;
}

bool ended(shm::Life life) {
  return life != shm::Life::kAbsent && life != shm::Life::kAlive;
}

// Ages instead of times: clocks of hosts differ.
Json state_of(const shm::Region& board, int rank) {
  const shm::RankSlot& slot = board.slot(rank);
  int64_t age_ms = (shm::now_ns() - slot.since_ns.load()) / 1'000'000;
  return Json(Json::Array{rank, static_cast<int64_t>(slot.life.load()), int64_t{slot.in_call.load()},
                          static_cast<int64_t>(slot.calls.load()), age_ms, int64_t{slot.pid.load()}, slot.tag.load(),
                          slot.reason.load()});
}

// True if the rank has ended by this news.
bool apply_state(const shm::Region& board, const Json& state, int only, int but) {
  const Json::Array& cells = state.as_array();
  SF_CHECK(cells.size() == 8, Exit::kProtocol, "a rank's state has 8 parts, not {}", cells.size());
  auto rank = static_cast<int>(cells[0].as_int());
  SF_CHECK(rank >= 0 && rank < board.world(), Exit::kProtocol, "there is no rank {}", rank);
  if (rank == but || (only >= 0 && rank != only)) return false;
  shm::RankSlot& slot = board.slot(rank);
  if (ended(slot.life.load())) return false;
  int64_t life = std::clamp<int64_t>(cells[1].as_int(), 0, static_cast<int64_t>(shm::Life::kDead));
  slot.in_call.store(cells[2].as_int() != 0 ? 1 : 0);
  slot.calls.store(static_cast<uint64_t>(cells[3].as_int()));
  slot.since_ns.store(shm::now_ns() - std::clamp<int64_t>(cells[4].as_int(), 0, int64_t{1} << 40) * 1'000'000);
  slot.pid.store(static_cast<int32_t>(cells[5].as_int()));
  slot.tag.store(cells[6].as_string());
  if (ended(static_cast<shm::Life>(life))) {
    shm::end_rank(board, rank, static_cast<shm::Life>(life), cells[7].as_string());
    return true;
  }
  slot.life.store(static_cast<shm::Life>(life));
  return false;
}

}  // namespace

Meeting::~Meeting() {
  thread_.request_stop();
  tell_now();
  if (thread_.joinable()) thread_.join();
}

void Meeting::put(const std::string& key, const std::vector<uint8_t>& value) {
  {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    send_all(Json::object().set("k", key).set("v", hex(value)).dump() + "\n", -1);
  }
  changed_.notify_all();
  tell_now();
}

std::optional<std::vector<uint8_t>> Meeting::find(const std::string& key) const {
  std::lock_guard lock(mutex_);
  auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

void Meeting::wait_change(Seconds span) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, span);
}

void Meeting::tell_now() {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(wake_.get(), &one, sizeof one);  // full: it is awake anyway
}

void Meeting::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    wait_for_events();
    std::lock_guard lock(mutex_);
    if (listener_.valid()) accept_lines();
    for (auto& line : lines_) {
      if (line->fd.valid()) read_line(*line);
    }
    std::erase_if(lines_, [](const auto& line) { return !line->fd.valid() && line->rank < 0; });
    pass_on(monotonic_s() - last_news_ < kNewsEveryS);
    for (auto& line : lines_) flush(*line);
  }
  farewell();
}

void Meeting::wait_for_events() {
  std::vector<pollfd> polls{{wake_.get(), POLLIN, 0}};
  {
    std::lock_guard lock(mutex_);
    if (listener_.valid()) polls.push_back({listener_.get(), POLLIN, 0});
    for (const auto& line : lines_) {
      short events = line->out.empty() ? POLLIN : POLLIN | POLLOUT;
      if (line->fd.valid()) polls.push_back({line->fd.get(), events, 0});
    }
  }
  poll(polls.data(), polls.size(), static_cast<int>(kTick.count() * 1e3));
  uint64_t count = 0;
  [[maybe_unused]] ssize_t taken = read(wake_.get(), &count, sizeof count);
}

void Meeting::accept_lines() {
  while (true) {
    UniqueFd fd = accept_from(listener_.get());
    if (!fd.valid()) return;
    watch_peer(fd.get());
    lines_.push_back(std::make_unique<Line>(Line{.fd = std::move(fd), .greeting = Deadline::after(Seconds(5))}));
  }
}

void Meeting::read_line(Line& line) {
  char bytes[16384];
  ssize_t count = recv(line.fd.get(), bytes, sizeof bytes, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    if (line.rank < 0 && line.greeting.passed()) line.fd = UniqueFd();
    return;
  }
  if (count <= 0) return lost(line);
  line.in.append(bytes, static_cast<size_t>(count));
  try {
    for (size_t end; (end = line.in.find('\n')) != std::string::npos && line.fd.valid();) {
      std::string text = line.in.substr(0, end);
      line.in.erase(0, end + 1);
      if (line.rank < 0) {
        welcome(line, text);
      } else {
        take(line, text);
      }
    }
  } catch (const Error&) {
    return lost(line);  // what speaks otherwise is no rank of ours
  }
  if (line.in.size() > kLongestLine || line.out.size() > kMostUnsent) lost(line);
}

void Meeting::take(Line& line, std::string_view text) {
  Json message = Json::parse(text, "a rank's message");
  if (const Json* states = message.find("s")) {
    bool end = false;
    for (const Json& state : states->as_array()) end |= apply_state(*board_, state, rank_ == 0 ? line.rank : -1, rank_);
    if (end) changed_.notify_all();
    return;
  }
  const std::string& key = message.at("k").as_string();
  values_[key] = from_hex(message.at("v").as_string());
  changed_.notify_all();
  if (rank_ == 0) send_all(std::string(text) + "\n", line.rank);
}

// Rank 0 hears who a new connection is.
void Meeting::welcome(Line& line, std::string_view text) {
  Json hello = Json::parse(text, "a rank's greeting");
  auto rank = static_cast<int>(hello.at("rank").as_int());
  std::string refused;
  if (hello.at("job").as_string() != job_ || hello.at("world").as_int() != world_) {
    refused = fmt::format("this is rank 0 of {} ranks of \"{}\"", world_, job_);
  } else if (rank < 1 || rank >= world_ || board_->slot(rank).life.load() != shm::Life::kAbsent) {
    refused = fmt::format("rank {} is here already", rank);
  }
  Json answer = Json::object().set("job", job_).set("refused", refused);
  line.out += answer.dump() + "\n";
  if (!refused.empty()) return flush(line), void(line.fd = UniqueFd());
  line.rank = rank;
  shm::RankSlot& slot = board_->slot(rank);
  slot.pid.store(static_cast<int32_t>(hello.at("pid").as_int()));
  slot.since_ns.store(shm::now_ns());
  slot.tag.store("start");
  slot.reason.store("on " + hello.at("host").as_string());
  slot.life.store(shm::Life::kAlive);
  if (address_.empty()) address_ = own_address(line.fd.get());
  for (const auto& [key, value] : values_) line.out += Json::object().set("k", key).set("v", hex(value)).dump() + "\n";
  if (++joined_ == world_ - 1) listener_ = UniqueFd();
  changed_.notify_all();
}

void Meeting::lost(Line& line) {
  line.fd = UniqueFd();
  if (line.rank < 0 || fault("comm.network_deaf")) return;
  shm::RankSlot& slot = board_->slot(line.rank);
  if (!ended(slot.life.load())) shm::end_rank(*board_, line.rank, shm::Life::kDead, "its connection ended");
  changed_.notify_all();
}

// What has changed since it was last told; of this rank alone, or on rank 0 of all.
std::string Meeting::news(bool only_ends) {
  Json states = Json::array();
  for (int rank = 0; rank < world_; ++rank) {
    if (rank_ != 0 && rank != rank_) continue;
    const shm::RankSlot& slot = board_->slot(rank);
    Told now{static_cast<uint32_t>(slot.life.load()), slot.in_call.load(), slot.calls.load()};
    Told& told = told_[static_cast<size_t>(rank)];
    bool differs = now.life != told.life || (!only_ends && (now.in_call != told.in_call || now.calls != told.calls));
    if (!differs) continue;
    told = now;
    states.push(state_of(*board_, rank));
  }
  return states.as_array().empty() ? "" : Json::object().set("s", states).dump() + "\n";
}

void Meeting::pass_on(bool only_ends) {
  std::string text = news(only_ends);
  if (!only_ends) last_news_ = monotonic_s();
  if (!text.empty()) send_all(text, -1);
}

void Meeting::send_all(const std::string& text, int but) {
  for (auto& line : lines_) {
    if (line->fd.valid() && line->rank >= 0 && line->rank != but) line->out += text;
  }
}

void Meeting::flush(Line& line) {
  while (line.fd.valid() && !line.out.empty()) {
    ssize_t count = send(line.fd.get(), line.out.data(), line.out.size(), MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count < 0) return lost(line);
    line.out.erase(0, static_cast<size_t>(count));
  }
}

// Last words, then silence: closing at once would throw away what the others have not read yet.
void Meeting::farewell() {
  std::lock_guard lock(mutex_);
  listener_ = UniqueFd();
  pass_on(false);
  Deadline patience = Deadline::after(kLastWords);
  auto unsent = [](const auto& line) { return line->fd.valid() && !line->out.empty(); };
  while (std::any_of(lines_.begin(), lines_.end(), unsent) && !patience.passed()) {
    for (auto& line : lines_) flush(*line);
    if (std::any_of(lines_.begin(), lines_.end(), unsent)) usleep(1000);
  }
  for (auto& line : lines_) {
    if (line->fd.valid()) shutdown(line->fd.get(), SHUT_WR);
  }
  patience = Deadline::after(kDrain);
  for (auto& line : lines_) {
    char bytes[4096];
    pollfd wait{line->fd.get(), POLLIN, 0};
    while (line->fd.valid() && !patience.passed() && poll(&wait, 1, patience.left_ms()) == 1 &&
           recv(line->fd.get(), bytes, sizeof bytes, 0) > 0) {
    }
  }
}

}  // namespace sf::comm
