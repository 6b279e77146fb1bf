// SPDX-License-Identifier: Apache-2.0
// Ranks that share a memory region: threads of one process, or processes of one host. One algorithm for both: each step
// a rank writes its half of the exchange area, all meet at a barrier, and each reads what it needs while the next step
// writes the other half. Large payloads pass in pieces, so memory is bounded by the areas whatever the tensors.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/shm_control.h"
#include "comm/group.h"

namespace sf::comm {

class SharedGroup : public Group {
 public:
  SharedGroup(std::shared_ptr<shm::Region> region, int rank, std::string_view kind);
  ~SharedGroup() override;

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  std::string_view kind() const override { return kind_; }
  using Group::all_gather;
  void all_gather(std::span<const GatherPart> parts, const Call& call) override;
  void reduce_fold(std::span<const float> gradient, bool present, std::span<const size_t> offsets, std::span<float> acc,
                   const Call& call) override;
  void all_reduce_sum(std::span<int64_t> values, const Call& call) override;
  void broadcast(std::span<std::byte> bytes, int root, const Call& call) override;
  std::vector<std::vector<std::byte>> all_to_all(const std::vector<std::span<const std::byte>>& to,
                                                 const Call& call) override;
  void barrier(const Call& call) override;
  Traffic traffic() const override { return traffic_; }
  void abandon(std::string_view reason) override;
  std::string state_text() const override { return shm::state_text(*region_); }

 private:
  class InCall;
  std::span<std::byte> half(int rank) const { return region_->area(rank, parity_); }
  void announce(uint64_t digest, bool present);
  bool present(int rank) const { return region_->slot(rank).announced[parity_].present.load() != 0; }
  void meet(const Call& call);       // the barrier of one step; then this step's areas may be read
  void end_step() { parity_ ^= 1; }  // this step's areas have been read
  bool wait_for_generation(uint32_t generation, const Call& call);
  void look_after_peers(bool ask_system, const Call& call);
  bool process_is_gone(int rank);
  void compare_announcements();
  void copy_out(std::span<const GatherPart> parts, int peer, size_t lo, size_t hi);
  [[noreturn]] void give_up(Exit code, const std::string& why);

  std::shared_ptr<shm::Region> region_;
  int rank_, world_;
  std::string kind_;
  unsigned parity_ = 0;
  std::vector<UniqueFd> peers_;  // pidfds, opened when a wait becomes long
  Traffic traffic_;
};

}  // namespace sf::comm
