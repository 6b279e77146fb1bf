// SPDX-License-Identifier: Apache-2.0
#include "gen/tree.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

#include "tensor/compare.h"
#include "tiny.h"

namespace sf::gen {
namespace {

constexpr float kScores[] = {1, 3, 2, 3};

TEST(Tree, TheBestTokensBecomeChildrenAndTheLowerOneLeadsATie) {
  Tree tree;
  tree.sprout(std::array{kTrunk}, kScores, std::array{10, 20, 30, 40}, 3);
  ASSERT_EQ(tree.nodes().size(), 3u);
  EXPECT_EQ(tree.nodes()[0].token, 20);
  EXPECT_EQ(tree.nodes()[1].token, 40);
  EXPECT_EQ(tree.nodes()[2].token, 30);
  const double all = std::log(std::exp(1.) + 2 * std::exp(3.) + std::exp(2.));
  EXPECT_NEAR(tree.nodes()[2].log_prob, 2 - all, 1e-12);
  tree.sprout(std::array{2, 0}, kScores, {}, 1);
  EXPECT_EQ(tree.nodes()[3].token, 1);
  EXPECT_EQ(tree.nodes()[3].parent, 2);
  EXPECT_EQ(tree.nodes()[3].depth, 1);
  EXPECT_NEAR(tree.nodes()[3].log_prob, 5 - 2 * all, 1e-12);
  EXPECT_EQ(tree.nodes()[4].parent, 0);
  EXPECT_EQ(tree.likeliest(1, 8), (std::vector<int32_t>{4, 3}));
}

TEST(Tree, AWidthBeyondTheVocabularyTakesAllOfIt) {
  Tree tree;
  tree.sprout(std::array{kTrunk}, kScores, {}, 9);
  EXPECT_EQ(tree.nodes().size(), 4u);
  EXPECT_EQ(tree.pruned(100).nodes().size(), 4u);
}

Tree random_tree(uint64_t seed) {
  const Rng rng(seed, "tree");
  Tree tree;
  uint64_t drawn = 0;
  std::vector<int32_t> front = {kTrunk};
  for (int32_t depth = 0; depth < 5; ++depth) {
    for (int32_t node : front) {
      std::vector<float> scores;
      for (int i = 0; i < 9; ++i) scores.push_back(rng.normal(drawn++));
      tree.sprout(std::array{node}, scores, {}, 4);
    }
    front = tree.likeliest(depth, 4);
  }
  return tree;
}

TEST(Tree, PrunedKeepsTheLikeliestInPreorder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Tree whole = random_tree(seed);
    double least_kept = 0;
    std::multiset<double> kept;
    const Tree tree = whole.pruned(15);
    ASSERT_EQ(tree.nodes().size(), 15u);
    std::map<int32_t, int32_t> children;
    for (size_t i = 0; i < tree.nodes().size(); ++i) {
      const TreeNode& node = tree.nodes()[i];
      kept.insert(node.log_prob), least_kept = std::min(least_kept, node.log_prob);
      ASSERT_LT(node.parent, static_cast<int32_t>(i));
      const int32_t above = node.parent == kTrunk ? -1 : tree.nodes()[static_cast<size_t>(node.parent)].depth;
      EXPECT_EQ(node.depth, above + 1);
      const bool first = children[node.parent]++ == 0;
      EXPECT_TRUE(!first || node.parent == static_cast<int32_t>(i) - 1);
    }
    for (const TreeNode& node : whole.nodes()) EXPECT_TRUE(node.log_prob <= least_kept || kept.contains(node.log_prob));
  }
}

// Rows of a tree see what they would see at the end of their own path alone, and what is kept of it serves on.
TEST(Tree, ARowOfATreeHasTheBitsOfItsPathAlone) {
  for (Dtype type : {Dtype::kF32, Dtype::kBF16}) {
    Target target = tiny::target(type);
    const std::vector<int32_t> trunk = tiny::ids(9, 1), ids = tiny::ids(7, 2);
    const std::array<int32_t, 7> parents = {kTrunk, 0, 1, 1, 0, 4, kTrunk};
    Cache cache = target.make_cache(64);
    target.prefill(cache, trunk);
    // Two forwards: later nodes hang below earlier ones.
    const Part first{&cache, std::span(ids).first(4), std::span(parents).first(4)};
    at::Tensor top = target.forward(std::span(&first, 1)).final_norm;
    const Part second{&cache, std::span(ids).last(3), std::span(parents).last(3)};
    at::Tensor rest = target.forward(std::span(&second, 1)).final_norm;
    EXPECT_EQ(cache.length(), 9);
    EXPECT_EQ(cache.nodes(), 7);
    for (int32_t node = 0; node < 7; ++node) {
      std::vector<int32_t> whole = trunk;
      for (int32_t step : cache.path_to(node)) whole.push_back(ids[static_cast<size_t>(step)]);
      Cache alone = target.make_cache(64);
      const at::Tensor wanted = target.prefill(alone, whole).final_norm;
      EXPECT_TRUE(tensor::bit_equal(node < 4 ? top.narrow(0, node, 1) : rest.narrow(0, node - 4, 1),
                                    wanted.narrow(0, wanted.size(0) - 1, 1)))
          << node;
    }
    cache.keep(std::array{0, 1, 2});
    EXPECT_EQ(cache.length(), 12);
    EXPECT_EQ(cache.nodes(), 0);
    std::vector<int32_t> whole = trunk;
    whole.insert(whole.end(), {ids[0], ids[1], ids[2], 5});
    Cache alone = target.make_cache(64);
    const int32_t next = 5;
    const Part part{&cache, std::span(&next, 1)};
    EXPECT_TRUE(tensor::bit_equal(target.forward(std::span(&part, 1)).final_norm,
                                  target.prefill(alone, whole).final_norm.narrow(0, 12, 1)));
  }
}

}  // namespace
}  // namespace sf::gen
