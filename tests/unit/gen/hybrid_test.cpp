// SPDX-License-Identifier: Apache-2.0
// Targets with delta nets: their states beside the cache of keys.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "gen/speculative.h"
#include "gen/tree.h"
#include "model/decoder.h"
#include "tensor/compare.h"
#include "tiny.h"

namespace sf::gen {
namespace {

using tensor::bit_equal;
using tiny::hybrid;

const std::vector<int64_t> kLayers{0, 1, 2, 4};

class HybridTarget : public testing::TestWithParam<std::tuple<Dtype, bool>> {
 protected:
  Target target() const { return tiny::target(std::get<0>(GetParam()), hybrid(std::get<1>(GetParam()))); }
};
INSTANTIATE_TEST_SUITE_P(Types, HybridTarget,
                         testing::Combine(testing::Values(Dtype::kF32, Dtype::kBF16), testing::Bool()));

at::Tensor forward(Target& target, Cache& cache, std::span<const int32_t> ids) {
  const Part part{&cache, ids};
  return target.forward(std::span(&part, 1)).final_norm;
}

TEST_P(HybridTarget, APrefillEqualsItsTokensOneByOne) {
  Target target = this->target();
  const std::vector<int32_t> ids = tiny::ids(270, 1);
  Cache whole = target.make_cache(320), single = target.make_cache(320);
  const States wanted = target.prefill(whole, ids, kLayers);
  for (size_t i = 0; i < ids.size(); ++i) {
    const Part part{&single, std::span(ids).subspan(i, 1)};
    const States states = target.forward(std::span(&part, 1), kLayers);
    const auto row = static_cast<int64_t>(i);
    ASSERT_TRUE(bit_equal(states.final_norm, wanted.final_norm.narrow(0, row, 1))) << i;
    for (size_t layer = 0; layer < kLayers.size(); ++layer)
      ASSERT_TRUE(bit_equal(states.captured[layer], wanted.captured[layer].narrow(0, row, 1))) << i;
  }
}

TEST_P(HybridTarget, WhateverIsAcceptedOfABlockTheBitsAreThoseOfPlainDecoding) {
  Target target = this->target();
  const std::vector<int32_t> ids = tiny::ids(40, 1), other = tiny::ids(6, 2);
  Cache clean = target.make_cache(64);
  const at::Tensor wanted = target.prefill(clean, ids).final_norm;
  constexpr int64_t kBlock = 6;
  auto expect = [&](const at::Tensor& found, int64_t from, int64_t count) {
    EXPECT_TRUE(bit_equal(found.narrow(0, 0, count), wanted.narrow(0, from, count))) << count << " from " << from;
  };
  for (int64_t accepted = 0; accepted <= kBlock; ++accepted) {
    Cache cache = target.make_cache(64);
    target.prefill(cache, std::span(ids).first(20));
    for (int64_t at = 20; at + kBlock <= 40; at += kBlock) {
      std::vector<int32_t> block(ids.begin() + at, ids.begin() + at + kBlock);
      std::copy(other.begin() + accepted, other.end(), block.begin() + accepted);
      expect(forward(target, cache, block), at, accepted);
      cache.truncate(at + accepted);
      if (accepted == kBlock) continue;
      const std::vector<int32_t> rest(ids.begin() + at + accepted, ids.begin() + at + kBlock);
      expect(forward(target, cache, rest), at + accepted, std::ssize(rest));
    }
  }
}

void expect_same_states(Cache& found, Cache& wanted, const std::string& where) {
  for (int64_t layer : {0, 1}) {
    ASSERT_EQ(found.recurrent(layer).length(), wanted.recurrent(layer).length()) << where;
    EXPECT_TRUE(bit_equal(found.recurrent(layer).state(), wanted.recurrent(layer).state())) << where;
    EXPECT_TRUE(bit_equal(found.recurrent(layer).history(), wanted.recurrent(layer).history())) << where;
  }
}

// A sequence that is verified in blocks and trees of any size, of which any number of tokens is kept.
class Verified {
 public:
  Verified(Target& target, std::span<const int32_t> ids, const at::Tensor& wanted, uint64_t seed)
      : target_(target), ids_(ids), wanted_(wanted), rng_(seed, "verified"), cache_(target.make_cache(256)) {}

  Cache& run() {
    expect_rows(forward_of(below(12) + 1));
    while (at_ + 9 < std::ssize(ids_)) switch (below(3)) {
        case 0:
          expect_rows(forward_of(1));
          break;
        case 1:
          block();
          break;
        default:
          tree();
      }
    while (at_ < std::ssize(ids_)) expect_rows(forward_of(1));
    return cache_;
  }

 private:
  int64_t below(int64_t most) { return static_cast<int64_t>(rng_.below(static_cast<uint64_t>(most), drawn_++)); }
  int32_t other_than(int32_t id) { return (id + 1 + static_cast<int32_t>(below(35))) % 37; }

  at::Tensor forward_of(int64_t count) {
    const at::Tensor found =
        forward(target_, cache_, ids_.subspan(static_cast<size_t>(at_), static_cast<size_t>(count)));
    at_ += count;
    return found;
  }
  void expect_rows(const at::Tensor& found) {
    EXPECT_TRUE(bit_equal(found, wanted_.narrow(0, at_ - found.size(0), found.size(0)))) << at_;
  }

  void block() {
    const int64_t size = 1 + below(9), kept = 1 + below(size);  // the first is a token already committed
    std::vector<int32_t> block(ids_.begin() + at_, ids_.begin() + at_ + size);
    for (int64_t i = kept; i < size; ++i) block[static_cast<size_t>(i)] = other_than(block[static_cast<size_t>(i)]);
    const at::Tensor found = forward(target_, cache_, block);
    EXPECT_TRUE(bit_equal(found.narrow(0, 0, kept), wanted_.narrow(0, at_, kept))) << at_;
    at_ += kept;
    cache_.truncate(at_);
  }

  // Each level holds the token that follows and up to two others, in any order; of the right path a part is kept.
  void tree() {
    const int64_t depth = 1 + below(6), kept = 1 + below(depth);
    std::vector<int32_t> nodes, parents, path;
    for (int64_t level = 0; level < depth; ++level) {
      const int32_t parent = path.empty() ? kTrunk : path.back(), right = ids_[static_cast<size_t>(at_ + level)];
      const int64_t siblings = below(3), place = below(siblings + 1);
      for (int64_t i = 0; i <= siblings; ++i) {
        if (i == place) path.push_back(static_cast<int32_t>(nodes.size()));
        nodes.push_back(i == place ? right : other_than(right));
        parents.push_back(parent);
      }
    }
    const Part part{&cache_, nodes, parents};
    const at::Tensor found = target_.forward(std::span(&part, 1)).final_norm;
    for (int64_t level = 0; level < depth; ++level)
      EXPECT_TRUE(bit_equal(found.narrow(0, path[static_cast<size_t>(level)], 1), wanted_.narrow(0, at_ + level, 1)));
    cache_.keep(std::span(path).first(static_cast<size_t>(kept)));
    at_ += kept;
  }

  Target& target_;
  std::span<const int32_t> ids_;
  const at::Tensor& wanted_;
  const Rng rng_;
  Cache cache_;
  uint64_t drawn_ = 0;
  int64_t at_ = 0;
};

TEST_P(HybridTarget, AnyPatternOfAcceptancesLeavesTheStatesOfPlainDecoding) {
  Target target = this->target();
  const std::vector<int32_t> ids = tiny::ids(90, 1);
  Cache plain = target.make_cache(256);
  std::vector<at::Tensor> rows;
  for (size_t i = 0; i < ids.size(); ++i) rows.push_back(forward(target, plain, std::span(ids).subspan(i, 1)));
  const at::Tensor wanted = at::cat(rows);
  for (uint64_t seed = 0; seed < 12; ++seed)
    expect_same_states(Verified(target, ids, wanted, seed).run(), plain, "seed " + std::to_string(seed));
}

TEST_P(HybridTarget, ACopiedCacheGoesOnAsItsOriginal) {
  Target target = this->target();
  const std::vector<int32_t> ids = tiny::ids(30, 1), other = tiny::ids(9, 2);
  Cache clean = target.make_cache(64);
  const at::Tensor wanted = target.prefill(clean, ids).final_norm;
  for (size_t held : {size_t{1}, size_t{12}}) {  // settled, and still kept back
    Cache cache = target.make_cache(64), copy = target.make_cache(128);
    target.prefill(cache, std::span(ids).first(held));
    copy.copy(cache);
    for (int32_t id : other) forward(target, cache, std::span(&id, 1));  // leaves no trace in the copy
    for (size_t i = held; i < ids.size(); ++i)
      EXPECT_TRUE(
          bit_equal(forward(target, copy, std::span(ids).subspan(i, 1)), wanted.narrow(0, static_cast<int64_t>(i), 1)))
          << i;
  }
}

TEST_P(HybridTarget, TheStateBehindABlockIsTheOutputOfAModelThatEndsThere) {
  const auto [compute, grouped] = GetParam();
  const arch::Decoder whole = hybrid(grouped);
  Target target = this->target();
  const std::vector<int32_t> ids = tiny::ids(70, 4);
  Cache cache = target.make_cache(128);
  const std::vector<int64_t> layers{0, 1, 2, 3, 4};
  const States found = target.prefill(cache, ids, layers);
  for (int64_t kept = 1; kept <= whole.layers; ++kept) {
    arch::Decoder d = whole;
    d.layers = kept;
    d.windows.resize(static_cast<size_t>(kept)), d.delta.layers.resize(static_cast<size_t>(kept));
    if (!grouped) d.experts.layers.resize(static_cast<size_t>(kept));
    Target truncated = tiny::target(compute, d);  // weights go by name
    Cache own = truncated.make_cache(128);
    const std::vector<int64_t> last{kept};
    const States wanted = truncated.prefill(own, ids, last);
    const at::Tensor& state = found.captured[static_cast<size_t>(kept)];
    EXPECT_TRUE(bit_equal(state, wanted.captured[0])) << kept;
    EXPECT_TRUE(state.ne(0).any(1).all().item<bool>()) << kept;
    EXPECT_FALSE(bit_equal(state, found.captured[static_cast<size_t>(kept - 1)])) << kept;
  }
}

TEST_P(HybridTarget, SpeculationGivesThePlainTokens) {
  Target target = this->target();
  Eagle3Draft draft = tiny::draft(target, 18);
  std::vector<Prompt> prompts;
  for (uint64_t i = 0; i < 5; ++i) prompts.push_back({i, tiny::ids(1 + 7 * static_cast<int64_t>(i), i)});
  using Answers = std::map<size_t, std::vector<int32_t>>;
  auto kept_in = [](Answers& all) { return [&](const Completion& done) { all[done.prompt] = done.ids; }; };
  for (double temperature : {0.0, 1.0}) {
    const GenerateOptions options{
        .sampling = {.temperature = temperature, .seed = 3}, .max_new_tokens = 24, .stop_ids = {4}, .batch = 3};
    Answers plain;
    generate(target, prompts, options, kept_in(plain));
    for (const Proposals& proposals : {Proposals{3}, Proposals{4, 16, 3}}) {
      if (temperature > 0 && !proposals.branch()) continue;  // the target's law, by other draws
      Answers found;
      const SpeculativeStats stats = speculate(target, draft, prompts, options, proposals, kept_in(found));
      EXPECT_EQ(found, plain);
      EXPECT_GT(stats.accepted[0], 0);
      EXPECT_GT(stats.tried[0], stats.accepted[0]);
    }
  }
}

TEST_P(HybridTarget, AKeptPathOfATreeLeavesTheBitsOfPlainDecoding) {
  Target target = this->target();
  const std::vector<int32_t> ids = tiny::ids(30, 1);
  Cache clean = target.make_cache(64), cache = target.make_cache(64);
  const at::Tensor wanted = target.prefill(clean, ids).final_norm;
  target.prefill(cache, std::span(ids).first(20));
  // 0 - 2 - 3 is what follows; 1 and 4 are other ways.
  const std::vector<int32_t> nodes{ids[20], 5, ids[21], ids[22], 9}, parents{kTrunk, kTrunk, 0, 2, 2};
  const Part part{&cache, nodes, parents};
  const at::Tensor found = target.forward(std::span(&part, 1)).final_norm;
  for (auto [node, position] : {std::pair(0, 20), {2, 21}, {3, 22}})
    EXPECT_TRUE(bit_equal(found.narrow(0, node, 1), wanted.narrow(0, position, 1))) << node;
  cache.keep(std::vector<int32_t>{0, 2, 3});
  EXPECT_TRUE(bit_equal(forward(target, cache, std::span(ids).last(7)), wanted.narrow(0, 23, 7)));
}

TEST_P(HybridTarget, SequencesOfAForwardDoNotSeeEachOtherAndACacheBeginsAnew) {
  Target target = this->target();
  const std::vector<int32_t> a = tiny::ids(9, 1), b = tiny::ids(70, 2);
  Cache first = target.make_cache(128), second = target.make_cache(128), alone = target.make_cache(128);
  const Part parts[] = {{&first, a}, {&second, b}};
  const at::Tensor both = target.forward(parts).final_norm;
  EXPECT_TRUE(bit_equal(both.narrow(0, 9, 70), forward(target, alone, b)));
  alone.truncate(0);
  EXPECT_TRUE(bit_equal(both.narrow(0, 0, 9), forward(target, alone, a)));
}

TEST(Hybrid, DecodingIsWhatTrainingsSegmentsMakeWithinRounding) {
  for (bool grouped : {false, true}) {
    const arch::Decoder d = hybrid(grouped);
    const model::Tensors weights = tiny::weights(arch::describe(d));
    Target target(d, Weights(weights, Dtype::kF32));
    const std::vector<int32_t> ids = tiny::ids(100, 3);
    Cache cache = target.make_cache(128);
    const States found = target.prefill(cache, ids, kLayers);
    at::Tensor rows = at::empty({1, 100}, at::kLong);
    for (int64_t i = 0; i < 100; ++i) rows.data_ptr<int64_t>()[i] = ids[static_cast<size_t>(i)];
    model::Tensors made{{"ids", rows}, {"positions", at::arange(100, at::kLong).unsqueeze(0)}};
    for (const model::Segment& segment : model::decoder_segments(d))
      for (auto& [name, value] : segment.forward(weights, made)) made[name] = value;
    // Sums in another order, over a hundred tokens of a recurrence.
    EXPECT_LT(tensor::max_abs_difference(found.final_norm, made.at("final_norm")[0]), 1e-4) << d.family;
    for (size_t i = 0; i < kLayers.size(); ++i)
      EXPECT_LT(tensor::max_abs_difference(found.captured[i], made.at("hidden." + std::to_string(kLayers[i]))[0]),
                1e-4);
  }
}

TEST(Hybrid, AStateThatIsGoneIsNotGuessed) {
  Target target = tiny::target(Dtype::kF32, hybrid(true));
  Cache cache = target.make_cache(128);
  target.prefill(cache, tiny::ids(90, 1));  // too many to be kept back
  cache.truncate(80);
  EXPECT_THROW(forward(target, cache, tiny::ids(3, 2)), Error);
}

}  // namespace
}  // namespace sf::gen
