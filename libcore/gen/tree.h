// SPDX-License-Identifier: Apache-2.0
// A draft's tree of proposals behind the last committed token (models_text_scoring 7.3, EAGLE-2's growth): every level
// gives the likeliest nodes of the level before it children of their own, and the likeliest nodes of all are kept.
// Pure.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sf::gen {

constexpr int32_t kTrunk = -1;  // parent of what stands right behind the last committed token

struct TreeNode {
  int32_t token = 0;        // of the target's vocabulary
  int32_t parent = kTrunk;  // index of an earlier node
  int32_t depth = 0;        // 0: behind the trunk
  double log_prob = 0;      // the draft's, of all tokens from the trunk to this one
};

class Tree {
 public:
  const std::vector<TreeNode>& nodes() const { return nodes_; }
  // The `width` best tokens of a row of fp32 scores become children of each parent, best first, the lower token first
  // among equals; `ids`: token of each score, ascending; empty: its index. kData if no score is finite.
  void sprout(std::span<const int32_t> parents, std::span<const float> scores, std::span<const int32_t> ids,
              int64_t width);
  // The `count` likeliest nodes of one depth, earlier ones first among equals.
  std::vector<int32_t> likeliest(int32_t depth, int64_t count) const;
  // The `count` likeliest nodes of all, in preorder: a node's first child stands right behind it. A parent is never
  // less likely than its child, so every node's parent is among them.
  Tree pruned(int64_t count) const;

 private:
  std::vector<TreeNode> nodes_;
};

}  // namespace sf::gen
