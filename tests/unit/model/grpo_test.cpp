// SPDX-License-Identifier: Apache-2.0
#include "model/grpo.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/rng.h"
#include "ops/norm.h"

namespace sf::model {
namespace {

constexpr int64_t kVocab = 41, kHidden = 16;

arch::Decoder small() {
  arch::Decoder d;
  d.family = "llama", d.architecture = "LlamaForCausalLM";
  d.vocab = kVocab, d.hidden = kHidden, d.intermediate = 24, d.layers = 1, d.heads = 2, d.kv_heads = 1, d.head_dim = 8;
  d.max_positions = 64;
  d.tied = false;
  d.windows = {0};
  return d;
}

at::Tensor random(const std::string& name, const Shape& shape, double scale, double mean, at::ScalarType type) {
  at::Tensor out = at::empty(shape, at::kDouble);
  const Rng rng(7, name);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<double>()[i] = mean + scale * rng.normal(static_cast<uint64_t>(i));
  return out.to(type);
}

// Rows of 3 and 4 labels of 6 places each; the last token of the second is not there.
struct Batch {
  Tensors parameters, in;
  Batch() {
    parameters["model.norm.weight"] = random("norm", {kHidden}, 0.1, 1, at::kFloat);
    parameters["lm_head.weight"] = random("table", {kVocab, kHidden}, 0.5, 0, at::kFloat);
    in["hidden.1"] = random("hidden", {2, 6, kHidden}, 1, 0, at::kFloat).requires_grad_();
    at::Tensor labels = at::empty({2, 6}, at::kLong).fill_(-1);
    for (int64_t place : {1, 2, 3, 7, 8, 9, 10}) labels.data_ptr<int64_t>()[place] = (place * 13) % kVocab;
    in["labels"] = labels;
    in["old_log_probs"] = random("old", {7}, 0.3, -3.5, at::kDouble);
    in["advantages"] = random("advantages", {7}, 1, 0, at::kDouble);
    in["shares"] = at::empty({7}, at::kDouble).fill_(1.0 / 6);
    in["shares"].data_ptr<double>()[6] = 0;
    in["weights"] = at::empty({0}, at::kDouble);
  }
  Tensors run(const PolicyForm& form) const { return grpo_segments(small(), {}, form).back().forward(parameters, in); }

  // Log-probabilities by LibTorch's own operators, differentiable.
  at::Tensor log_probs(double temperature) const {
    at::Tensor places = in.at("labels").view({-1}).ge(0).nonzero().view({-1});
    at::Tensor states = in.at("hidden.1").view({-1, kHidden}).index_select(0, places);
    at::Tensor normed = ops::rms_norm(states, parameters.at("model.norm.weight"), small().rms_eps);
    at::Tensor z = at::linear(normed, parameters.at("lm_head.weight")).to(at::kDouble).div(temperature);
    at::Tensor wanted = in.at("labels").view({-1}).index_select(0, places);
    return at::log_softmax(z, 1).gather(1, wanted.unsqueeze(1)).squeeze(1);
  }
};

double worst(const at::Tensor& a, const at::Tensor& b) {
  return a.detach().to(at::kDouble).sub(b.detach().to(at::kDouble)).abs().max().item<double>();
}

TEST(Grpo, TellsLogProbabilitiesUnderTheTemperature) {
  Batch batch;
  for (double temperature : {1.0, 0.7})
    // fp32 logits and sums of forty terms.
    EXPECT_LT(worst(batch.run({.temperature = temperature}).at("log_probs"), batch.log_probs(temperature)), 2e-6);
}

TEST(Grpo, WithoutSharesLearnsNothing) {
  Batch batch;
  const at::Tensor wanted = batch.run({}).at("log_probs");
  for (const char* name : {"shares", "old_log_probs", "advantages"}) batch.in[name] = at::empty({0}, at::kDouble);
  const Tensors out = batch.run({});
  EXPECT_EQ(out.at("loss").item<float>(), 0);
  EXPECT_EQ(worst(out.at("log_probs"), wanted), 0);
}

// max(-A r, -A clip(r)) by autograd in fp64, against what the segment hands back to the hidden states.
TEST(Grpo, HasTheGradientOfThePolicyLoss) {
  Batch batch;
  const PolicyForm form{.clip = {.high = 0.28}, .temperature = 0.8};
  const Tensors out = batch.run(form);
  at::Tensor ratio = batch.log_probs(form.temperature).sub(batch.in.at("old_log_probs")).exp();
  at::Tensor a = batch.in.at("advantages");
  at::Tensor plain = a.neg().mul(ratio), bounded = a.neg().mul(ratio.clamp(0.8, 1.28));
  at::Tensor both = at::where(bounded.gt(plain), bounded, plain);
  const at::Tensor most = a.neg().mul(3);
  both = at::where(a.lt(0).logical_and(both.gt(most)), most, both);
  at::Tensor loss = both.mul(batch.in.at("shares")).sum();
  EXPECT_NEAR(out.at("sums").data_ptr<double>()[0], loss.item<double>(), 1e-5);
  EXPECT_EQ(out.at("sums").data_ptr<double>()[1], 6);
  const at::Tensor hidden = batch.in.at("hidden.1");
  const at::Tensor wanted = torch::autograd::grad({loss}, {hidden})[0];
  const at::Tensor found = torch::autograd::grad({out.at("loss")}, {hidden})[0];
  EXPECT_GT(wanted.abs().max().item<double>(), 1e-2);
  EXPECT_LT(worst(found, wanted), 1e-6);  // fp32 against fp64 behind the norm
}

TEST(Grpo, TellsTheEntropyOfTheTokensThatAreThere) {
  Batch batch;
  const PolicyForm form{.temperature = 0.8};
  at::Tensor places = batch.in.at("labels").view({-1}).ge(0).nonzero().view({-1}).narrow(0, 0, 6);
  at::Tensor states = batch.in.at("hidden.1").view({-1, kHidden}).index_select(0, places);
  at::Tensor normed = ops::rms_norm(states, batch.parameters.at("model.norm.weight"), small().rms_eps);
  at::Tensor log_p = at::log_softmax(
      at::linear(normed, batch.parameters.at("lm_head.weight")).to(at::kDouble).div(form.temperature), 1);
  const double wanted = log_p.exp().mul(log_p).sum().neg().item<double>();
  EXPECT_NEAR(batch.run(form).at("sums").data_ptr<double>()[5], wanted, 1e-5);  // six fp32 sums of about 3
}

// A coefficient times KL, by autograd in fp64, for every estimator whose gradient is its value's.
TEST(Grpo, AddsTheDistanceToAReference) {
  for (const char* name : {"k1", "k2", "k3", "k3+"}) {
    Batch batch;
    batch.in["advantages"].zero_();  // nothing else is learned
    batch.in["reference"] = batch.log_probs(1).detach().add(random("reference", {7}, 0.3, 0, at::kDouble));
    const PolicyForm form{.kl = rl::KlLoss{rl::kl_from_name(name), 0.7}};
    const Tensors out = batch.run(form);
    const at::Tensor log_probs = batch.log_probs(1), x = batch.in.at("reference").sub(log_probs);
    const std::string form_name(name);
    const at::Tensor value = form_name == "k1" ? x.neg() : form_name == "k2" ? x.mul(x).div(2) : x.exp().sub(x).sub(1);
    const at::Tensor slopes = form_name == "k3+" ? x.mul(x).div(2) : value;
    EXPECT_NEAR(out.at("sums").data_ptr<double>()[6], value.mul(batch.in.at("shares")).sum().item<double>(), 1e-5)
        << name;
    const at::Tensor hidden = batch.in.at("hidden.1");
    const at::Tensor wanted = torch::autograd::grad({slopes.mul(batch.in.at("shares")).sum().mul(0.7)}, {hidden})[0];
    const at::Tensor found = torch::autograd::grad({out.at("loss")}, {hidden})[0];
    EXPECT_GT(wanted.abs().max().item<double>(), 1e-3) << name;
    EXPECT_LT(worst(found, wanted), 1e-6) << name;
  }
}

}  // namespace
}  // namespace sf::model
