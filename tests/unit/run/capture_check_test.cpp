// SPDX-License-Identifier: Apache-2.0
// The self-test of a capture: it passes what a run captures, and finds each fault that captures of other tools had.
#include <gtest/gtest.h>

#include <cstdlib>

#include "../gen/tiny.h"
#include "base/error.h"
#include "run/capture.h"

namespace sf::run {
namespace {

tool::CaptureWish eagle3() {
  return {"eagle3", {1, 2, 4}, true, true, {"1", "2", "4", "final_norm"}};
}
tool::CaptureWish dflash() {
  return {"dflash", {0, 3}, false, false, {"0", "3"}};
}

// Three rows, the second rejected; the first is longer than one cut of a prefill and than what is checked.
std::vector<text::ChatRow> rows() {
  std::vector<text::ChatRow> all;
  for (int64_t length : {400, 0, 19}) {
    text::ChatRow row{.row = all.size(), .id = "c" + std::to_string(all.size())};
    row.encoded.ids = gen::tiny::ids(length, 3 + all.size());
    row.encoded.loss_mask.assign(row.encoded.ids.size(), 1);
    if (length == 0) row.rejected = "no supervised token";
    all.push_back(row);
  }
  return all;
}

// A capture of a whole target, and its self-test.
struct Tested {
  Tested(gen::Target& target, const tool::CaptureWish& wish, const std::string& feature)
      : states(whole_target(target, seen_by_teacher(wish, feature, target.compute()))),
        capture(*states, wish, feature) {}
  CaptureCheck check(const Carrier& carrier = {}) {
    return check_capture(capture, rows(), 8, *comm::make_single(), carrier);
  }
  std::unique_ptr<StatesOf> states;
  Capture capture;
};

std::string complaint(gen::Target& target, const tool::CaptureWish& wish, const char* fault = "",
                      const Carrier& carrier = {}) {
  setenv("SF_FAULT", fault, 1);
  Tested tested(target, wish, "BF16");
  std::string message;
  try {
    tested.check(carrier);
  } catch (const Error& error) {
    message = error.what();
    EXPECT_EQ(error.code(), Exit::kData);
  }
  unsetenv("SF_FAULT");
  return message;
}

TEST(SelfTest, RowsAsTheRunCapturesThemAreThoseOfPlainForwards) {
  for (Dtype compute : {Dtype::kF32, Dtype::kBF16}) {
    gen::Target target = gen::tiny::target(compute);
    for (const tool::CaptureWish& wish : {eagle3(), dflash()}) {
      for (const char* feature : {"F32", "BF16", "F8_E4M3"}) {
        CaptureCheck seen = Tested(target, wish, feature).check();
        EXPECT_EQ(seen.rows, 2);
        EXPECT_EQ(seen.tokens, tool::kMostChecked + 19);
      }
    }
  }
}

TEST(SelfTest, SaysWhatANarrowTypeDoesToTheLoss) {
  gen::Target target = gen::tiny::target();
  CaptureCheck seen = Tested(target, eagle3(), "BF16").check();
  EXPECT_EQ(seen.predicted, tool::kMostChecked - 1 + 18);
  EXPECT_GT(seen.widest, 0);
  EXPECT_LE(seen.widest, 1. / 256);  // half a unit of eight bits
  EXPECT_NE(seen.exact_loss, seen.carried_loss);
  EXPECT_NEAR(seen.exact_loss, seen.carried_loss, 1e-2);
  EXPECT_EQ(Tested(target, eagle3(), "F32").check().predicted, 0);
  seen = Tested(target, eagle3(), "F8_E4M3").check();
  EXPECT_GT(seen.widest, 1. / 256);
  EXPECT_LE(seen.widest, 1. / 28);  // half a unit of the largest binade, 16 of 448
  EXPECT_NEAR(seen.exact_loss, seen.carried_loss, 0.1);
}

TEST(SelfTest, NamesEachFaultOfACapture) {
  gen::Target target = gen::tiny::target();
  const std::vector<std::array<const char*, 3>> faults = {
      {"run.layer_before", "layer 2", "it is layer 1"},
      {"run.no_final_norm", "final_norm", "it is layer 4, the state without the final norm"},
      {"run.cached_prefix", "layer 1", "tokens' states differ"},
      {"run.shifted", "layer 1", "it is shifted by one token"},
      {"run.other_rows", "row 2 (id c2)", "it is that of row 0"},
      {"run.zero_states", "row 0 (id c0)", "is zero throughout"}};
  for (auto [fault, where, what] : faults) {
    tool::CaptureWish wish = eagle3();
    if (fault == std::string("run.layer_before")) wish.layers = {2, 3, 4};
    const std::string message = complaint(target, wish, fault);
    EXPECT_NE(message.find(where), std::string::npos) << fault << ": " << message;
    EXPECT_NE(message.find(what), std::string::npos) << fault << ": " << message;
  }
}

TEST(SelfTest, MayPassTheSocketsOfAStream) {
  const Carrier sockets = [](std::vector<stream::Sample> samples) { return through_sockets({}, std::move(samples)); };
  gen::Target target = gen::tiny::target();
  EXPECT_EQ(complaint(target, eagle3(), "", sockets), "");
  EXPECT_NE(complaint(target, eagle3(), "run.shifted", sockets).find("it is shifted by one token"), std::string::npos);
}

TEST(SelfTest, ATargetWhoseBlocksDoNothingIsRefused) {
  const arch::Decoder d = gen::tiny::decoder();
  model::Tensors all = gen::tiny::weights(arch::describe(d));
  for (const char* name : {"self_attn.o_proj.weight", "mlp.down_proj.weight"})
    all.at(std::string("model.layers.1.") + name).zero_();
  gen::Target target(d, gen::Weights(all, Dtype::kF32));
  EXPECT_NE(complaint(target, eagle3()).find("layers 1 and 2 are bit-equal"), std::string::npos);
}

TEST(SelfTest, ATargetThatDoesNotSeeItsInputIsRefused) {
  const arch::Decoder d = gen::tiny::decoder();
  model::Tensors all = gen::tiny::weights(arch::describe(d));
  all.at("model.embed_tokens.weight").fill_(0.5f);
  gen::Target target(d, gen::Weights(all, Dtype::kF32));
  EXPECT_NE(complaint(target, eagle3()).find("does not see its input"), std::string::npos);
}

}  // namespace
}  // namespace sf::run
