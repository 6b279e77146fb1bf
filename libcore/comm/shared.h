// SPDX-License-Identifier: Apache-2.0
// Ranks that share a memory region: threads of one process, or processes of one host. Each rank writes one half of its
// area, all meet at a barrier, and each reads what it needs while the next step writes the other half.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/file.h"
#include "comm/stepped.h"

namespace sf::comm {

// Where the threads of one process find the groups they split into: by call number and colour.
struct ThreadParts {
  struct Part {
    std::shared_ptr<shm::Region> region;
    std::shared_ptr<ThreadParts> parts;  // of that group
  };
  std::mutex mutex;
  std::map<std::pair<uint64_t, int>, Part> made;  // guarded by mutex
};

class SharedGroup : public SteppedGroup {
 public:
  // `parts`: of ranks that are threads, shared by them all; null: ranks are processes.
  SharedGroup(Place place, std::shared_ptr<ThreadParts> parts);

 protected:
  size_t area_bytes() const override { return board_->half_bytes(); }
  std::span<std::byte> mine() override { return board_->area(rank_, parity_); }
  void announce(uint64_t digest, bool present, const Call& call) override;
  bool present(int peer) const override { return board_->slot(peer).announced[parity_].present.load() != 0; }
  void meet(const Pieces& pieces, const Call& call) override;  // the barrier of one step
  const std::byte* from(int peer, const Pieces& pieces) const override {
    return board_->area(peer, parity_).data() + static_cast<size_t>(rank_) * pieces.window;
  }
  bool is_late(int peer) const override {
    return board_->slot(peer).arrived.load() != board_->control().generation.load() + 1;
  }
  void end_step() override { parity_ ^= 1; }  // this step's areas have been read
  std::unique_ptr<Group> make_part(int colour, const std::vector<int>& members, const Call& call) override;

 private:
  void wait_for_generation(uint32_t generation, const Call& call);
  void look_after_peers(bool ask_system, uint32_t generation, const Call& call);
  bool process_is_gone(int rank);
  void compare_announcements();
  ThreadParts::Part part_of_threads(int colour, size_t members);
  ThreadParts::Part part_of_processes(const std::vector<int>& members, const Call& call);

  std::shared_ptr<ThreadParts> parts_;
  unsigned parity_ = 0;
  double spin_s_;                // of a wait, before it sleeps
  std::vector<UniqueFd> peers_;  // pidfds, opened when a wait becomes long
};

}  // namespace sf::comm
