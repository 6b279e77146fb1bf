// SPDX-License-Identifier: Apache-2.0
#include "comm/stepped.h"

#include <unistd.h>

#include <exception>

#include "base/echoed.h"
#include "base/fault.h"
#include "comm/checks.h"

namespace sf::comm {

SteppedGroup::SteppedGroup(Place place)
    : place_(std::move(place)), board_(place_.board), rank_(place_.rank), world_(board_->world()) {
  shm::RankSlot& slot = board_->slot(rank_);
  slot.pid.store(getpid());
  slot.since_ns.store(shm::now_ns());
  slot.tag.store("start");
  shm::Life absent = shm::Life::kAbsent;
  SF_CHECK(slot.life.compare_exchange_strong(absent, shm::Life::kAlive), Exit::kSoftware,
           "rank {} of this group exists already", rank_);
}

SteppedGroup::~SteppedGroup() {
  if (std::uncaught_exceptions() > 0) {
    shm::end_rank(*board_, rank_, shm::Life::kFailed, "an error");
  } else {
    shm::end_rank(*board_, rank_, shm::Life::kLeft, "");
  }
}

void SteppedGroup::peer_ended(int peer, shm::Life how, std::string_view reason) {
  shm::end_rank(*board_, peer, how, reason);
  if (place_.root) shm::end_rank(*place_.root, root_rank(peer), how, reason);
}

void SteppedGroup::abandon(std::string_view reason) {
  peer_ended(rank_, shm::Life::kFailed, reason);
}

void SteppedGroup::give_up(Exit code, const std::string& why) {
  abandon(why);
  throw Error(code, why);
}

void SteppedGroup::disagree(int peer, std::string_view its_tag, uint64_t its_calls) {
  const shm::RankSlot& own = board_->slot(rank_);
  give_up(Exit::kSoftware,
          fmt::format("ranks disagree: rank {} is in {} (call {}), rank {} in {} (call {}), or in the same call with "
                      "other sizes",
                      root_rank(rank_), own.tag.load(), own.calls.load(), root_rank(peer), its_tag, its_calls));
}

void SteppedGroup::give_up_late(const Call& call) {
  for (int peer = 0; peer < world_; ++peer) {
    shm::RankSlot& slot = place_.root ? place_.root->slot(root_rank(peer)) : board_->slot(peer);
    if (peer != rank_ && slot.life.load() == shm::Life::kAlive && is_late(peer)) slot.late.store(1);
  }
  // The board takes a short text: what all ranks do is for this rank to tell.
  const std::string why = fmt::format("rank {} gave up waiting in {}: deadline passed", root_rank(rank_), call.tag);
  const std::string states = in_one_line(state_text());
  abandon(why);
  fail(Exit::kUnavailable, "{}; {}", why, states);
}

std::pair<const shm::Region*, int> SteppedGroup::first_ended() const {
  const shm::Region* root = fault("comm.part_alone") ? board_.get() : &root_board();
  auto counts = [&](int rank) { return !place_.aside || root->slot(rank).life.load() == shm::Life::kDead; };
  if (int culprit = static_cast<int>(root->control().culprit.load()) - 1; culprit >= 0 && counts(culprit))
    return {root, culprit};
  for (int peer = 0; peer < world_; ++peer) {
    shm::Life life = board_->slot(peer).life.load();
    if (peer != rank_ && life != shm::Life::kAlive && life != shm::Life::kAbsent) return {board_.get(), peer};
    // One that the steps no longer wait for writes nothing either.
    if (place_.aside && peer != rank_ && root->slot(root_rank(peer)).late.load() != 0) return {root, root_rank(peer)};
  }
  return {nullptr, -1};
}

void SteppedGroup::stop_if_ended(const Call& call) {
  auto [board, gone] = first_ended();
  if (gone < 0) return;
  double since = static_cast<double>(shm::now_ns() - board_->slot(rank_).since_ns.load()) / 1e9;
  const std::string why = fmt::format("{}; rank {} waits in {} since {:.1f} s", shm::end_text(*board, gone),
                                      root_rank(rank_), call.tag, since);
  if (board->slot(gone).life.load() != shm::Life::kFailed) give_up(Exit::kUnavailable, why);
  abandon(why);
  throw Echoed(Exit::kUnavailable, why);  // who failed tells it
}

bool SteppedGroup::is_late(int peer) const {
  const shm::RankSlot &own = board_->slot(rank_), &other = board_->slot(peer);
  return other.calls.load() < own.calls.load() || other.in_call.load() == 0;
}

Place SteppedGroup::part_place(std::shared_ptr<shm::Region> board, const std::vector<int>& members) const {
  Place place{.board = std::move(board), .kind = place_.kind, .root = place_.root ? place_.root : board_};
  for (int member : members) {
    if (member < rank_) ++place.rank;
    place.root_ranks.push_back(root_rank(member));
  }
  return place;
}

std::unique_ptr<Group> SteppedGroup::split(int colour, const Call& call) {
  auto world = static_cast<size_t>(world_);
  std::vector<int> colours(world);
  std::vector<size_t> sizes(world, sizeof colour);
  all_gather(std::as_bytes(std::span(&colour, 1)), sizes, std::as_writable_bytes(std::span(colours)), call);
  std::vector<int> members;
  for (int rank = 0; rank < world_; ++rank) {
    if (colours[static_cast<size_t>(rank)] == colour) members.push_back(rank);
  }
  // Every rank takes part in the making, even one that stays alone: the calls of all ranks are the same.
  std::unique_ptr<Group> part = make_part(colour, members, call);
  return members.size() == 1 ? make_single() : std::move(part);
}

std::unique_ptr<Group> SteppedGroup::aside(const Call& call) {
  std::unique_ptr<Group> part = split(0, call);
  if (auto* ours = dynamic_cast<SteppedGroup*>(part.get())) ours->place_.aside = true;
  return part;
}

}  // namespace sf::comm
