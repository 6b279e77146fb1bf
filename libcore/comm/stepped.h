// SPDX-License-Identifier: Apache-2.0
// The calls of a group in terms of steps, once for every way bytes travel: in each step a rank writes its exchange
// area, all meet, and each reads what the others wrote for it. Large payloads pass in pieces, so memory is bounded by
// the areas whatever the tensors. Who lives and who waits where stands on a board (base/shm_control.h) every rank can
// read.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/shm_control.h"
#include "comm/group.h"

namespace sf::comm {

// A place on a board, and the group this one was split from, whose fate it shares.
struct Place {
  std::shared_ptr<shm::Region> board;
  int rank = 0;
  std::string kind;
  std::shared_ptr<shm::Region> root = nullptr;  // board of the undivided group; null in that group itself
  std::vector<int> root_ranks = {};             // of this group's ranks
  bool aside = false;                           // of another thread's calls: see Group::aside()
};

class SteppedGroup : public Group {
 public:
  explicit SteppedGroup(Place place);
  ~SteppedGroup() override;

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  std::string_view kind() const override { return place_.kind; }
  using Group::all_gather;
  void all_gather(std::span<const GatherPart> parts, const Call& call) override;
  void reduce_fold(std::span<const float> gradient, bool present, std::span<const size_t> offsets, std::span<float> acc,
                   const Call& call) override;
  void reduce_given(const GiveGradient& give, bool present, std::span<const size_t> offsets, std::span<float> acc,
                    const Call& call) override;
  void all_reduce_sum(std::span<int64_t> values, const Call& call) override;
  void broadcast(std::span<std::byte> bytes, int root, const Call& call) override;
  std::vector<std::vector<std::byte>> all_to_all(const std::vector<std::span<const std::byte>>& to,
                                                 const Call& call) override;
  void barrier(const Call& call) override;
  std::unique_ptr<Group> split(int colour, const Call& call) override;
  std::unique_ptr<Group> aside(const Call& call) override;
  Traffic traffic() const override { return traffic_; }
  void abandon(std::string_view reason) override;
  std::string state_text() const override { return shm::state_text(root_board()); }

 protected:
  // What travels in a step: `bytes(from, to)` of it. window 0: every rank reads the same bytes, from the area's start;
  // else those for rank r lie at r * window.
  struct Pieces {
    size_t window = 0;
    std::function<size_t(int from, int to)> bytes;
  };
  virtual size_t area_bytes() const = 0;
  virtual std::span<std::byte> mine() = 0;  // this step's area, to write before meet()
  // Tells what call this is (equal on all ranks, or an end with kSoftware) and whether this rank gives something.
  virtual void announce(uint64_t digest, bool present, const Call& call) = 0;
  virtual bool present(int peer) const = 0;  // after meet()
  virtual void meet(const Pieces& pieces, const Call& call) = 0;
  virtual const std::byte* from(int peer, const Pieces& pieces) const = 0;  // until end_step()
  virtual void end_step() = 0;
  // A new group of the `members` (ranks of this one, ascending, this rank among them; two at least).
  virtual std::unique_ptr<Group> make_part(int colour, const std::vector<int>& members, const Call& call) = 0;

  // A part's place: its own board, under the undivided group's.
  Place part_place(std::shared_ptr<shm::Region> board, const std::vector<int>& members) const;
  // Reports speak of the undivided group and its ranks.
  const shm::Region& root_board() const { return place_.root ? *place_.root : *board_; }
  int root_rank(int rank) const { return place_.root ? place_.root_ranks[static_cast<size_t>(rank)] : rank; }
  void peer_ended(int peer, shm::Life how, std::string_view reason);  // here and in the undivided group
  [[noreturn]] void disagree(int peer, std::string_view its_tag, uint64_t its_calls);
  // Ends the group on every rank, and throws. `why` names who waits where.
  [[noreturn]] void give_up(Exit code, const std::string& why);
  // Throws if a peer is gone, or any rank of the undivided group. Its own end names the cause, on every rank alike.
  void stop_if_ended(const Call& call);
  bool somebody_ended() const { return first_ended().second >= 0; }
  // Whose end ends this group, and on which board it is told; {null, -1}: nobody's.
  std::pair<const shm::Region*, int> first_ended() const;
  [[noreturn]] void give_up_late(const Call& call);  // the deadline has passed: marks and names who is late
  virtual bool is_late(int peer) const;              // has not come as far as this rank, as the board says

  Place place_;
  std::shared_ptr<shm::Region> board_;
  int rank_, world_;
  Traffic traffic_;

 private:
  class InCall;
  struct Fold;
  void run_fold(const Fold& fold, const Call& call);
  void copy_out(std::span<const GatherPart> parts, const Pieces& pieces, int peer, size_t lo, size_t hi);
};

}  // namespace sf::comm
