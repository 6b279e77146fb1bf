// SPDX-License-Identifier: Apache-2.0
#include "gen/tree.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace sf::gen {
namespace {

double log_sum_exp(std::span<const float> scores) {
  const double most = *std::max_element(scores.begin(), scores.end());
  SF_CHECK(std::isfinite(most), Exit::kData, "the draft's scores are not finite");
  double sum = 0;
  for (float score : scores) sum += std::exp(double{score} - most);
  return most + std::log(sum);
}

// The first `count` of `order` by falling `value`, earlier ones first among equals.
template <typename Value>
void keep_best(std::vector<int32_t>& order, int64_t count, const Value& value) {
  const auto kept = std::min(count, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                    [&](int32_t a, int32_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  order.resize(static_cast<size_t>(kept));
}

}  // namespace

void Tree::sprout(std::span<const int32_t> parents, std::span<const float> scores, std::span<const int32_t> ids,
                  int64_t width) {
  const double all = log_sum_exp(scores);
  std::vector<int32_t> best(scores.size());
  std::iota(best.begin(), best.end(), 0);
  keep_best(best, width, [&](int32_t i) { return scores[static_cast<size_t>(i)]; });
  for (int32_t parent : parents) {
    const TreeNode above = parent == kTrunk ? TreeNode{.depth = -1} : nodes_.at(static_cast<size_t>(parent));
    for (int32_t i : best) {
      const auto at = static_cast<size_t>(i);
      nodes_.push_back({ids.empty() ? i : ids[at], parent, above.depth + 1, above.log_prob + scores[at] - all});
    }
  }
}

std::vector<int32_t> Tree::likeliest(int32_t depth, int64_t count) const {
  std::vector<int32_t> found;
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].depth == depth) found.push_back(static_cast<int32_t>(i));
  keep_best(found, count, [&](int32_t i) { return nodes_[static_cast<size_t>(i)].log_prob; });
  return found;
}

Tree Tree::pruned(int64_t count) const {
  std::vector<int32_t> kept(nodes_.size());
  std::iota(kept.begin(), kept.end(), 0);
  keep_best(kept, count, [&](int32_t i) { return nodes_[static_cast<size_t>(i)].log_prob; });
  std::ranges::sort(kept);
  std::vector<std::vector<int32_t>> children(nodes_.size() + 1);  // the last: the trunk's
  for (int32_t i : kept) {
    const int32_t parent = nodes_[static_cast<size_t>(i)].parent;
    children[parent == kTrunk ? nodes_.size() : static_cast<size_t>(parent)].push_back(i);
  }
  Tree out;
  std::vector<std::pair<int32_t, int32_t>> open;  // (node, its parent in `out`), the next one last
  auto push = [&](size_t of, int32_t parent) {
    for (auto it = children[of].rbegin(); it != children[of].rend(); ++it) open.push_back({*it, parent});
  };
  push(nodes_.size(), kTrunk);
  while (!open.empty()) {
    const auto [node, parent] = open.back();
    open.pop_back();
    const auto index = static_cast<int32_t>(out.nodes_.size());
    out.nodes_.push_back(nodes_[static_cast<size_t>(node)]);
    out.nodes_.back().parent = parent;
    push(static_cast<size_t>(node), index);
  }
  return out;
}

}  // namespace sf::gen
