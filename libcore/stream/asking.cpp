// SPDX-License-Identifier: Apache-2.0
#include "stream/asking.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/fault.h"

namespace sf::stream {
namespace {

// Positions one producer may owe one rank ahead of need: enough to keep it busy, few enough to go to another instead.
constexpr uint64_t kAhead = 8;
constexpr double kSlowerThanEver = 2;  // a second producer is asked after so many times the slowest answer so far

}  // namespace

std::optional<std::string> Tally::wrong() const {
  if (asked == trained + voids + in_flight + unanswered) return std::nullopt;
  return fmt::format("asked {} is not trained {} + void {} + in flight {} + not yet answered {}", asked, trained, voids,
                     in_flight, unanswered);
}

std::optional<std::string> ProducerTally::wrong() const {
  if (asked == answered + lost + overtaken + unanswered) return std::nullopt;
  return fmt::format("asked {} is not answered {} + lost {} + overtaken {} + not yet answered {}", asked, answered,
                     lost, overtaken, unanswered);
}

// What is under way or ready (`ahead`), and the most that all of it, taken samples included, may come to (`most`).
struct Asking::Room {
  uint64_t ahead = 0, most = 0;
};

void Asking::join(int producer) {
  Producer& one = producers_[producer];
  one.live = true;
  one.stopping = false;
  one.computing.reset();
  one.queued = 0;
  for (auto& [position, item] : items_)
    if (auto asked = item.asked.find(producer); asked != item.asked.end()) asked->second.anew = true;
}

void Asking::stop(int producer) {
  producers_[producer].stopping = true;
}

uint64_t Asking::lose(int producer) {
  auto found = producers_.find(producer);
  if (found == producers_.end() || !found->second.live) return 0;
  found->second.live = false;
  uint64_t lost = 0;
  for (auto& [position, item] : items_) {
    if (item.asked.erase(producer) == 0) continue;
    ++lost;
    if (item.asked.empty() && !fault("stream.forget_the_lost")) item.state = State::kWanted;
  }
  found->second.tally.unanswered -= lost;
  found->second.tally.lost += lost;
  return lost;
}

bool Asking::idle(int producer) const {
  auto found = producers_.find(producer);
  return found == producers_.end() || found->second.tally.unanswered == 0;
}

void Asking::says(int producer, std::optional<uint64_t> computing, uint64_t queued) {
  Producer& one = producers_.at(producer);
  one.computing = computing;
  one.queued = queued;
}

void Asking::want(uint64_t position) {
  asked_ += items_.try_emplace(position).second;
}

void Asking::need(uint64_t position) {
  want(position);
  Item& item = items_.at(position);
  if (item.state == State::kTaken) item = {.before = true};
  item.needed = true;
}

// Positions below the highest one asked keep their room under the cap though they are to be asked again.
Asking::Room Asking::room() const {
  Room room;
  bool asked_above = false;
  for (auto it = items_.rbegin(); it != items_.rend(); ++it) {
    const Item& item = it->second;
    if (item.state == State::kReady || item.state == State::kTaken) {
      room.ahead += item.state == State::kReady ? item.bytes : 0;
      room.most += item.bytes;
    } else if (item.state == State::kAsked || asked_above) {
      room.ahead += item.state == State::kAsked ? expected() : 0;
      room.most += std::max(marks_.bound, largest_);
    }
    asked_above = asked_above || item.state != State::kWanted;
  }
  return room;
}

bool Asking::may_ask_ahead(const Room& room) {
  if (fault("stream.ignore_marks")) return true;
  if (room.ahead <= marks_.low) open_ = true;
  if (room.ahead > 0 && room.ahead + expected() > marks_.high) open_ = false;
  return open_ && (marks_.cap == 0 || room.most + std::max(marks_.bound, largest_) <= marks_.cap);
}

std::optional<int> Asking::least_loaded(bool ahead, const std::map<int, Asked>& but) const {
  std::optional<int> best;
  auto load = [&](int id) {
    const Producer& one = producers_.at(id);
    return std::tuple(one.stopping, one.tally.unanswered, one.tally.asked);  // who was told to stop: only if alone
  };
  for (const auto& [id, producer] : producers_) {
    if (!producer.live || but.contains(id)) continue;
    if (ahead && producer.tally.unanswered >= kAhead) continue;
    if (!best || load(id) < load(*best)) best = id;
  }
  return best;
}

Asking::Request Asking::ask(int producer, uint64_t position, Item& item, double now) {
  auto [asked, fresh] = item.asked.try_emplace(producer);
  asked->second = {now, now, false};
  item.state = State::kAsked;
  item.urged = item.needed;
  again_ += item.before;
  item.before = true;
  ProducerTally& tally = producers_.at(producer).tally;
  tally.asked += fresh;
  tally.again += !fresh;
  tally.unanswered += fresh;
  return {producer, position, item.needed, !fresh};
}

// An ask or its answer was lost: nothing of it came for a while, nothing else is on its way, and the producer neither
// computes it nor (unless a caller waits for it) has anything of ours left to do. Or it is slower than any was before,
// a caller waits, and another producer is there.
std::optional<Asking::Request> Asking::ask_again(uint64_t position, Item& item, double now) {
  for (auto& [id, asked] : item.asked) {
    const Producer& producer = producers_.at(id);
    bool gone = now - std::max(asked.progress, producer.heard) > retry_s_ && producer.computing != position &&
                (item.needed || producer.queued == 0);
    if (!asked.anew && !gone) continue;
    return ask(id, position, item, now);
  }
  double patience = std::max(retry_s_, kSlowerThanEver * slowest_);
  bool late = item.needed && item.asked.size() == 1 && now - item.asked.begin()->second.progress > patience;
  if (!late) return std::nullopt;
  std::optional<int> other = least_loaded(false, item.asked);
  if (!other) return std::nullopt;
  return ask(*other, position, item, now);
}

std::vector<Asking::Request> Asking::requests(double now) {
  std::vector<Request> list;
  Room spoken = room();
  bool ahead = true;  // until the first that must wait: lower positions come first
  for (auto& [position, item] : items_) {
    if (item.state == State::kAsked) {
      if (item.needed && !item.urged) {  // it was asked ahead: from now on it passes the producer's credit
        item.urged = true;
        for (const auto& [id, asked] : item.asked) list.push_back({id, position, true, false});
      }
      if (auto request = ask_again(position, item, now)) list.push_back(*request);
    }
    if (item.state != State::kWanted || !(item.needed || ahead)) continue;
    if (!item.needed && !(ahead = may_ask_ahead(spoken))) continue;
    std::optional<int> producer = least_loaded(!item.needed, {});
    if (!producer) {
      ahead = false;
      continue;
    }
    list.push_back(ask(*producer, position, item, now));
    spoken = room();
  }
  return list;
}

bool Asking::expects(int producer, uint64_t position) const {
  auto found = items_.find(position);
  return found != items_.end() && found->second.state == State::kAsked && found->second.asked.contains(producer);
}

void Asking::progress(int producer, uint64_t position, double now) {
  producers_.at(producer).heard = now;
  if (expects(producer, position)) items_.at(position).asked.at(producer).progress = now;
}

void Asking::damaged(int producer, uint64_t position) {
  if (expects(producer, position)) items_.at(position).asked.at(producer).anew = true;
}

// Whoever else was asked for it has been overtaken.
void Asking::settle(Item& item, int by) {
  for (const auto& [id, asked] : item.asked) {
    ProducerTally& tally = producers_.at(id).tally;
    --tally.unanswered;
    ++(id == by ? tally.answered : tally.overtaken);
  }
  item.asked.clear();
}

bool Asking::answered(int producer, uint64_t position, uint64_t bytes, bool is_void, double now) {
  if (!expects(producer, position)) {
    ++late_;
    return false;
  }
  Item& item = items_.at(position);
  slowest_ = std::max(slowest_, now - item.asked.at(producer).since);
  settle(item, producer);
  item.state = State::kReady;
  item.bytes = bytes;
  item.is_void = is_void;
  item.from = producer;
  largest_ = std::max(largest_, bytes);
  return true;
}

int Asking::take(uint64_t position) {
  Item& item = items_.at(position);
  SF_ASSERT(item.state == State::kReady);
  item.state = State::kTaken;
  item.needed = false;
  return item.from;
}

void Asking::trained(uint64_t end) {
  for (auto it = items_.begin(); it != items_.end() && it->first < end;) {
    bool taken = it->second.state == State::kTaken;
    if (taken) ++(it->second.is_void ? voids_ : trained_);
    if (taken && fault("stream.count_twice")) ++trained_;
    it = taken ? items_.erase(it) : std::next(it);
  }
}

bool Asking::waits_for(uint64_t position) const {
  auto found = items_.find(position);
  return found != items_.end() && (found->second.state == State::kWanted || found->second.state == State::kAsked);
}

size_t Asking::waiting() const {
  return static_cast<size_t>(std::count_if(items_.begin(), items_.end(), [](const auto& item) {
    return item.second.state == State::kWanted || item.second.state == State::kAsked;
  }));
}

uint64_t Asking::held() const {
  uint64_t bytes = 0;
  for (const auto& [position, item] : items_) bytes += item.bytes;
  return bytes;
}

Tally Asking::tally() const {
  const uint64_t unanswered = waiting();
  const auto unasked = std::ranges::count_if(items_, [](const auto& item) { return !item.second.before; });
  return {.asked = asked_,
          .trained = trained_,
          .voids = voids_,
          .in_flight = items_.size() - unanswered,
          .unanswered = unanswered,
          .unasked = static_cast<uint64_t>(unasked),
          .again = again_,
          .late = late_};
}

ProducerTally Asking::tally(int producer) const {
  auto found = producers_.find(producer);
  return found == producers_.end() ? ProducerTally{} : found->second.tally;
}

std::optional<std::string> Asking::wrong() const {
  const Tally all = tally();
  std::optional<std::string> what = all.wrong();
  uint64_t requests = 0;
  for (const auto& [id, producer] : producers_) {
    if (!what) what = producer.tally.wrong();
    requests += producer.tally.asked + producer.tally.again;
  }
  if (what || requests == all.asked - all.unasked + all.again) return what;
  return fmt::format("{} requests to producers are not one for each of {} positions and {} again", requests,
                     all.asked - all.unasked, all.again);
}

}  // namespace sf::stream
