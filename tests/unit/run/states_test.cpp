// SPDX-License-Identifier: Apache-2.0
// A target that ranks hold together gives the bits of one that is whole; rows are shared out.
#include "run/states.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <mutex>

#include "../gen/tiny.h"
#include "arch/states.h"
#include "base/error.h"
#include "run/capture_passes.h"

namespace sf::run {
namespace {

std::vector<text::ChatRow> rows_of(std::initializer_list<int64_t> lengths) {
  std::vector<text::ChatRow> rows;
  for (int64_t length : lengths) {
    text::ChatRow row{.row = rows.size(), .id = "c" + std::to_string(rows.size())};
    row.encoded.ids = gen::tiny::ids(length, 5 + rows.size());
    row.encoded.loss_mask.assign(row.encoded.ids.size(), 1);
    if (length == 0) row.rejected = "empty";
    rows.push_back(row);
  }
  return rows;
}

std::vector<const text::ChatRow*> places_of(const std::vector<text::ChatRow>& rows) {
  std::vector<const text::ChatRow*> places;
  for (const text::ChatRow& row : rows) places.push_back(&row);
  return places;
}

gen::Seen eye(Dtype compute) {
  return [compute](const at::Tensor& state) { return state.to(at::kBFloat16).to(gen::scalar_type(compute)); };
}

SharedTarget shared(const arch::Decoder& decoder, const model::Tensors& all, Dtype compute) {
  SharedTarget target{decoder, compute, eye(compute), {}};
  target.read = [&all](const std::string& name, int64_t lo, int64_t hi, std::span<float> to) {
    const float* values = all.at(name).const_data_ptr<float>();
    std::copy(values + lo, values + hi, to.begin());
  };
  return target;
}

engine::EngineOptions together(Dtype compute, plan::Layout layout) {
  engine::EngineOptions options;
  options.schedule.compute = compute;
  options.schedule.layout = layout;
  options.schedule.prefetch = 1;
  options.poison = true;  // a read of what was given up shows
  return options;
}

void expect_same(const Computed& found, const Computed& wanted) {
  EXPECT_TRUE(at::equal(found.states.final_norm, wanted.states.final_norm));
  ASSERT_EQ(found.states.captured.size(), wanted.states.captured.size());
  for (size_t i = 0; i < found.states.captured.size(); ++i)
    EXPECT_TRUE(at::equal(found.states.captured[i], wanted.states.captured[i])) << "layer " << i;
  EXPECT_TRUE(at::equal(found.teacher.top1, wanted.teacher.top1));
  EXPECT_TRUE(at::equal(found.teacher.lse, wanted.teacher.lse));
}

// Each rank computes its own rows in one pass; the last has none in the first.
void expect_the_bits_of_one(const arch::Decoder& decoder, Dtype compute, plan::Layout layout, int world) {
  const model::Tensors all = gen::tiny::weights(arch::describe(decoder));
  const std::vector<text::ChatRow> rows = rows_of({300, 7, 1, 260, 19});
  const std::vector<int64_t> layers = {0, 2, decoder.layers};
  gen::Target whole(decoder, gen::Weights(all, compute));
  const std::vector<Computed> wanted = whole_target(whole, eye(compute))->of(places_of(rows), layers);
  std::mutex one;
  comm::run_threads(world, [&](comm::Group& group) {
    auto states = shared_target(group, shared(decoder, all, compute), together(compute, layout));
    for (const std::vector<size_t>& shares : {std::vector<size_t>{0, 1, 2}, std::vector<size_t>{3, 4}}) {
      std::vector<const text::ChatRow*> mine;
      std::vector<size_t> places;
      for (size_t i = 0; i < shares.size(); ++i)
        if (static_cast<int>(i) % std::max(1, world - 1) == group.rank()) {
          places.push_back(shares[i]);
          mine.push_back(&rows[shares[i]]);
        }
      const std::vector<Computed> found = states->of(mine, layers), plain = states->plainly(mine, layers);
      ASSERT_EQ(found.size(), mine.size());
      std::lock_guard lock(one);
      for (size_t i = 0; i < mine.size(); ++i) {
        expect_same(found[i], wanted[places[i]]);
        expect_same(plain[i], wanted[places[i]]);
      }
    }
  });
}

TEST(SharedTarget, GivesTheBitsOfAWholeOneForAnyRanksAndCut) {
  for (Dtype compute : {Dtype::kF32, Dtype::kBF16})
    for (int world : {1, 2, 3}) expect_the_bits_of_one(gen::tiny::decoder(), compute, plan::Layout::kDim0, world);
  expect_the_bits_of_one(gen::tiny::decoder(), Dtype::kF32, plan::Layout::kFlat, 2);
}

TEST(SharedTarget, MayBeTiedOrRouted) {
  arch::Decoder tied = gen::tiny::decoder();
  tied.tied = true;
  for (const arch::Decoder& decoder : {tied, gen::tiny::routed_decoder()})
    expect_the_bits_of_one(decoder, Dtype::kF32, plan::Layout::kDim0, 2);
}

TEST(SharedTarget, NamesTheRowsOfWhatIsBroken) {
  const arch::Decoder decoder = gen::tiny::decoder();
  const model::Tensors all = gen::tiny::weights(arch::describe(decoder));
  std::vector<text::ChatRow> rows = rows_of({5});
  rows[0].encoded.ids[3] = 99;
  auto group = comm::make_single();
  auto states = shared_target(*group, shared(decoder, all, Dtype::kF32), together(Dtype::kF32, plan::Layout::kDim0));
  try {
    states->of(places_of(rows), {});
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kData);
    EXPECT_NE(std::string(error.what()).find("row 0 (id c0)"), std::string::npos) << error.what();
  }
}

TEST(DescribeStates, LeavesOutAHeadThatNobodyNeeds) {
  arch::Decoder decoder = gen::tiny::decoder();
  EXPECT_NE(arch::describe_states(decoder, true).find("lm_head.weight"), nullptr);
  EXPECT_EQ(arch::describe_states(decoder, false).find("lm_head.weight"), nullptr);
  decoder.tied = true;
  EXPECT_NE(arch::describe_states(decoder, false).find("model.embed_tokens.weight"), nullptr);
  EXPECT_EQ(arch::describe_states(decoder, false).segments.back().name, "norm");
}

TEST(ShareOut, GivesARowToWhoeverHasTheFewestTokens) {
  const std::vector<text::ChatRow> rows = rows_of({50, 10, 10, 0, 10, 10, 10, 100});
  const Shares shares = share_out(places_of(rows), 2, 60);
  EXPECT_EQ(shares.of[0], (std::vector<size_t>{0}));
  EXPECT_EQ(shares.of[1], (std::vector<size_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(shares.taken, 7u);
}

TEST(ShareOut, TakesALongRowAloneAndOneAtATimeWhereNothingIsShared) {
  const std::vector<text::ChatRow> rows = rows_of({500, 3, 3});
  const std::vector<const text::ChatRow*> places = places_of(rows);
  EXPECT_EQ(share_out(places, 1, 60).taken, 1u);
  EXPECT_EQ(share_out(std::span(places).subspan(1), 1, 1).taken, 1u);
}

}  // namespace
}  // namespace sf::run
