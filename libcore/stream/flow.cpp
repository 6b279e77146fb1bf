// SPDX-License-Identifier: Apache-2.0
#include "stream/flow.h"

#include <algorithm>

#include "base/error.h"
#include "base/fault.h"

namespace sf::stream {
namespace {

bool dropped(uint64_t position) {
  return fault("stream.drop_request") && position == 3;
}

}  // namespace

void Flow::join(const Peer& peer, size_t credit_bytes) {
  peers_[peer] = State{};
  peers_[peer].credit = credit_bytes;
}

void Flow::drop(const Peer& peer) {
  peers_.erase(peer);
}

void Flow::land(State& state, uint64_t position) {
  auto it = state.flying.find(position);
  if (it == state.flying.end()) return;
  state.flying_bytes -= it->second;
  state.flying.erase(it);
}

void Flow::ask(const Peer& peer, const Ask& ask) {
  auto found = peers_.find(peer);
  SF_ASSERT(found != peers_.end());
  State& state = found->second;
  for (uint64_t position : ask.landed) land(state, position);
  size_t waiting = state.now.size() + state.want.size();
  SF_CHECK(waiting <= kMaxQueued || ask.now.size() + ask.want.size() == 0, Exit::kData,
           "a rank asks for more while {} of its positions wait, at most {} may", waiting, kMaxQueued);
  for (uint64_t position : ask.now) {
    if (state.flying.contains(position) || dropped(position)) continue;
    state.want.erase(position);
    state.now.insert(position);
  }
  for (uint64_t position : ask.want) {
    if (state.now.contains(position) || state.flying.contains(position) || dropped(position)) continue;
    state.want.insert(position);
  }
}

bool Flow::has_room(const State& state, size_t promised) const {
  if (fault("stream.ignore_credit")) return true;
  const size_t bytes = state.flying_bytes + promised;
  return bytes == 0 || bytes + largest_ <= state.credit;
}

std::optional<uint64_t> Flow::next() const {
  const std::vector<uint64_t> lowest = next(1);
  return lowest.empty() ? std::nullopt : std::optional(lowest.front());
}

std::vector<uint64_t> Flow::next(size_t most) const {
  std::vector<uint64_t> chosen;
  std::map<Peer, size_t> promised;
  for (bool more = true; more && chosen.size() < most;) {
    std::optional<uint64_t> lowest;
    auto offer = [&](const std::set<uint64_t>& positions) {
      auto open = [&](uint64_t position) { return std::ranges::find(chosen, position) == chosen.end(); };
      auto first = std::ranges::find_if(positions, open);
      if (first == positions.end()) return;
      const uint64_t position = fault("stream.newest_first") ? *positions.rbegin() : *first;
      if (!lowest || position < *lowest) lowest = position;
    };
    for (const auto& [peer, state] : peers_) {
      offer(state.now);
      if (has_room(state, promised[peer])) offer(state.want);
    }
    more = lowest && largest_ > 0;
    if (!lowest) break;
    chosen.push_back(*lowest);
    for (const auto& [peer, state] : peers_)
      if (state.now.contains(*lowest) || state.want.contains(*lowest)) promised[peer] += largest_;
  }
  return chosen;
}

std::vector<Flow::Peer> Flow::serve(uint64_t position, size_t bytes) {
  std::vector<Peer> receivers;
  for (auto& [peer, state] : peers_) {
    bool wanted = state.want.contains(position) && has_room(state);
    if (!wanted && !state.now.contains(position)) continue;
    state.want.erase(position);
    state.now.erase(position);
    state.flying[position] = bytes;
    state.flying_bytes += bytes;
    receivers.push_back(peer);
  }
  largest_ = std::max(largest_, bytes);
  return receivers;
}

size_t Flow::in_flight(const Peer& peer) const {
  auto found = peers_.find(peer);
  return found == peers_.end() ? 0 : found->second.flying_bytes;
}

size_t Flow::in_flight() const {
  size_t total = 0;
  for (const auto& [peer, state] : peers_) total += state.flying_bytes;
  return total;
}

size_t Flow::queued(const Peer& peer) const {
  auto found = peers_.find(peer);
  return found == peers_.end() ? 0 : found->second.now.size() + found->second.want.size();
}

size_t Flow::queued() const {
  size_t total = 0;
  for (const auto& [peer, state] : peers_) total += state.now.size() + state.want.size();
  return total;
}

}  // namespace sf::stream
