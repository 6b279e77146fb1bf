// SPDX-License-Identifier: Apache-2.0
// A world of one: copies and additions, no waiting.
#include <cstring>

#include "base/error.h"
#include "comm/checks.h"
#include "comm/group.h"

namespace sf::comm {
namespace {

class Single : public Group {
 public:
  int rank() const override { return 0; }
  int world() const override { return 1; }
  std::string_view kind() const override { return "single"; }

  void all_gather(std::span<const GatherPart> parts, const Call&) override {
    ++traffic_.calls;
    for (const GatherPart& part : parts) {
      check_part(part, 0, 1);
      if (!part.mine.empty()) std::memmove(part.into.data(), part.mine.data(), part.mine.size());
    }
  }

  void reduce_fold(std::span<const float> gradient, bool present, std::span<const size_t> offsets, std::span<float> acc,
                   const Call&) override {
    ++traffic_.calls;
    check_fold(gradient, present, offsets, acc, 0, 1);
    if (present) fold_into(acc, gradient.data());
  }

  void all_reduce_sum(std::span<int64_t>, const Call&) override { ++traffic_.calls; }

  void broadcast(std::span<std::byte>, int root, const Call&) override {
    SF_ASSERT(root == 0);
    ++traffic_.calls;
  }

  std::vector<std::vector<std::byte>> all_to_all(const std::vector<std::span<const std::byte>>& to,
                                                 const Call&) override {
    SF_ASSERT(to.size() == 1);
    ++traffic_.calls;
    return {{to[0].begin(), to[0].end()}};
  }

  void barrier(const Call&) override { ++traffic_.calls; }
  std::unique_ptr<Group> split(int, const Call&) override {
    ++traffic_.calls;
    return make_single();
  }
  std::unique_ptr<Group> aside(const Call&) override { return make_single(); }
  Traffic traffic() const override { return traffic_; }
  void abandon(std::string_view) override {}
  std::string state_text() const override { return "rank 0 is alone"; }

 private:
  Traffic traffic_;
};

}  // namespace

std::unique_ptr<Group> make_single() {
  return std::make_unique<Single>();
}

}  // namespace sf::comm
