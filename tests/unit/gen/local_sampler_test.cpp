// SPDX-License-Identifier: Apache-2.0
#include "gen/local_sampler.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/group.h"
#include "tiny.h"

namespace sf::gen {
namespace {

LiveAdapter adapter(const std::string& version) {
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  return {{name, {tiny::random(version + "a", {2, 32}, 0.3f, 0), tiny::random(version + "b", {64, 2}, 0.3f, 0), 2.0}}};
}

std::vector<Prompt> prompts() {
  std::vector<Prompt> all;
  for (uint64_t i = 0; i < 7; ++i) all.push_back({i, tiny::ids(3 + static_cast<int64_t>(i), i)});
  return all;
}

std::vector<Completion> answers(int world, const LiveAdapter& held) {
  const GenerateOptions options{
      .sampling = {.temperature = 1, .seed = 3}, .max_new_tokens = 9, .stop_ids = {4}, .token_log_probs = true};
  std::vector<Completion> result;
  comm::run_threads(world, [&](comm::Group& group) {
    Target target = tiny::target();
    LocalSampler sampler(group, target);
    sampler.adopt(0, held, digest_of(held));
    std::vector<Completion> found = sampler.answer(prompts(), options);
    if (group.rank() == group.world() - 1) result = std::move(found);
  });
  return result;
}

TEST(LocalSampler, GivesEveryRankTheSameAnswersWhateverTheirNumber) {
  const std::vector<Completion> alone = answers(1, adapter("x"));
  ASSERT_EQ(alone.size(), 7u);
  for (int world : {2, 3, 9}) {
    const std::vector<Completion> many = answers(world, adapter("x"));
    ASSERT_EQ(many.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(many[i].prompt, i);
      EXPECT_EQ(many[i].ids, alone[i].ids);
      EXPECT_EQ(many[i].finish, alone[i].finish);
      EXPECT_EQ(many[i].token_log_probs, alone[i].token_log_probs);
    }
  }
}

TEST(LocalSampler, AnswersUnderTheAdapterThatItAdopted) {
  const std::vector<Completion> one = answers(1, adapter("x")), other = answers(1, adapter("y"));
  bool differ = false;
  for (size_t i = 0; i < one.size(); ++i) differ |= one[i].token_log_probs != other[i].token_log_probs;
  EXPECT_TRUE(differ);
}

TEST(LocalSampler, ThatKeepsAnOldAdapterIsRefusedWithBothDigests) {
  const LiveAdapter old = adapter("old"), fresh = adapter("new");
  comm::run_threads(1, [&](comm::Group& group) {
    Target target = tiny::target();
    LocalSampler sampler(group, target);
    sampler.adopt(0, old, digest_of(old));
    sampler.adopt(1, fresh, digest_of(fresh));
    EXPECT_EQ(sampler.version(), 1);
    EXPECT_EQ(sampler.digest(), digest_of(fresh));
    try {
      sampler.adopt(2, old, digest_of(fresh));  // other bytes than were published
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kProtocol);
      for (const LiveAdapter* each : {&old, &fresh})
        EXPECT_NE(error.message().find(digest_of(*each).substr(0, 16)), std::string::npos) << error.message();
    }
  });
}

TEST(LocalSampler, DigestsNameEveryPartOfAnAdapter) {
  const LiveAdapter one = adapter("x");
  LiveAdapter scaled = one, turned = one;
  scaled.begin()->second.scale = 1;
  turned.begin()->second.a = turned.begin()->second.a.view({1, 64});
  EXPECT_NE(digest_of(scaled), digest_of(one));
  EXPECT_NE(digest_of(turned), digest_of(one));
}

}  // namespace
}  // namespace sf::gen
