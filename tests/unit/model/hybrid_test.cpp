// SPDX-License-Identifier: Apache-2.0
// The hybrid families: what golden cases cannot say.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "arch/decoder.h"
#include "base/error.h"
#include "base/rng.h"
#include "chain.h"
#include "model/decoder.h"
#include "model/indexed_attention.h"
#include "model/ngrams.h"
#include "ops/attention.h"
#include "tensor/compare.h"

namespace sf::model {
namespace {

constexpr const char* kNext = R"({"model_type": "qwen3_next", "vocab_size": 41, "hidden_size": 32,
  "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
  "max_position_embeddings": 128, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
  "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "full_attention_interval": 2, "num_experts": 4,
  "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 12, "eos_token_id": 2})";

constexpr const char* kExp = R"({"model_type": "qwen4_exp_text", "vocab_size": 41, "hidden_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
  "max_position_embeddings": 128, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
  "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "full_attention_interval": 2, "num_experts": 4,
  "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 12, "eos_token_id": 2,
  "hc_count": 4, "hc_lowrank": 8, "ple_layer_ids": [1], "ngram_vocab_size_base": 31, "heads_per_ngram": 2,
  "make_ngram_vocab_size_divisible_by": 16, "rope_parameters": {"rope_theta": 10000, "mrope_section": [3, 3, 2]},
  "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8,
  "indexer_compress_ratio": 4})";

arch::Decoder decoder(const char* config) {
  return arch::decoder_from_config(Json::parse(config, "test"));
}

at::Tensor random(const std::string& name, const Shape& shape, float scale) {
  at::Tensor out = at::empty(shape, at::kFloat);
  Rng rng(7, name);
  for (int64_t i = 0; i < out.numel(); ++i) out.data_ptr<float>()[i] = scale * rng.normal(static_cast<uint64_t>(i));
  return out;
}

Tensors weights_of(const arch::Decoder& d) {
  Tensors weights;
  for (const arch::Parameter& p : arch::describe(d).parameters) weights[p.name] = random(p.name, p.shape, 0.3f);
  return weights;
}

at::Tensor ids_of(int64_t length) {
  at::Tensor ids = at::empty({1, length}, at::kLong);
  for (int64_t i = 0; i < length; ++i)
    ids.data_ptr<int64_t>()[i] = 3 + static_cast<int64_t>(Rng(5, "ids").below(38, static_cast<uint64_t>(i)));
  return ids;
}

at::Tensor counting(int64_t length) {
  return at::arange(length, at::kLong).expand({1, length});
}

Tensors run(const arch::Decoder& d, const Tensors& weights, Tensors boundaries) {
  return run_chain(decoder_segments(d), weights, std::move(boundaries));
}

TEST(Hybrid, PaddingBeforeARowLeavesItsTokensAsTheyAreAlone) {
  for (const char* config : {kNext, kExp}) {
    const arch::Decoder d = decoder(config);
    const Tensors weights = weights_of(d);
    const at::Tensor ids = ids_of(20), pads = at::ones({1, 5}, at::kLong), nothing = at::zeros({1, 5}, at::kLong);
    const at::Tensor alone = run(d, weights, {{"ids", ids}, {"positions", counting(20)}}).at("final_norm");
    const at::Tensor padded = run(d, weights,
                                  {{"ids", at::cat({pads, ids}, 1)},
                                   {"positions", at::cat({nothing, counting(20)}, 1)},
                                   {"attention_mask", at::cat({nothing, at::ones({1, 20}, at::kLong)}, 1)}})
                                  .at("final_norm");
    // Chunks of the delta net are cut elsewhere: sums in another order.
    EXPECT_LT(tensor::max_abs_difference(padded.narrow(1, 5, 20), alone), 2e-4) << d.family;
  }
}

TEST(Hybrid, EqualPlanesOfPositionsGiveTheBitsOfOne) {
  const arch::Decoder d = decoder(kExp);
  const Tensors weights = weights_of(d);
  const at::Tensor ids = ids_of(24), one = counting(24);
  const at::Tensor wanted = run(d, weights, {{"ids", ids}, {"positions", one}}).at("logits");
  for (const at::Tensor& planes : {at::stack({one, one, one}), at::stack({one.add(3), one, one, one})})
    EXPECT_TRUE(tensor::bit_equal(run(d, weights, {{"ids", ids}, {"positions", planes}}).at("logits"), wanted));
}

TEST(Hybrid, WithinItsBudgetIndexedAttentionIsDenseBitForBit) {
  const arch::Decoder sparse = decoder(kExp);
  arch::Decoder dense = sparse;
  dense.indexer = {};
  const Tensors weights = weights_of(sparse);
  const Tensors in{{"ids", ids_of(24)}, {"positions", counting(24)}};
  const at::Tensor a = run(sparse, weights, in).at("final_norm"), b = run(dense, weights, in).at("final_norm");
  EXPECT_TRUE(tensor::bit_equal(a.narrow(1, 0, 11), b.narrow(1, 0, 11)));  // 8 keys of the budget, 3 left over
  EXPECT_GT(tensor::max_abs_difference(a.narrow(1, 20, 4), b.narrow(1, 20, 4)), 1e-4);
}

TEST(Hybrid, AnIndexerGivesATieToTheLowerBlock) {
  const arch::Decoder d = decoder(kExp);
  Tensors weights = weights_of(d);
  weights["model.layers.1.self_attn.indexer.index_qk_proj.weight"].zero_();  // every score is 0
  const BlockNames names("model.layers.1.", {});
  const Rotary rotary(d.rope, d.rotary_dims(), d.max_positions);
  const Tensors none;
  const at::Tensor kept =
      indexed_keys(d, Given(names, weights, none), random("x", {1, 22, 32}, 1), rotary.turns_for(counting(22)), 0);
  at::Tensor wanted = at::zeros({22}, at::kBool);
  wanted.narrow(0, 0, 8).fill_(true);
  wanted.narrow(0, 20, 2).fill_(true);  // of an incomplete block
  EXPECT_TRUE(kept[0][21].equal(wanted));
}

TEST(Hybrid, AttentionOverKeptKeysIsAttentionWhereAllAreKept) {
  auto leaf = [](const char* name, int64_t heads) {
    return random(name, {2, heads, 9, 16}, 1).set_requires_grad(true);
  };
  const at::Tensor q = leaf("q", 4), k = leaf("k", 2), v = leaf("v", 2);
  const at::Tensor kept = at::ones({9, 9}, at::kBool).tril().expand({2, 9, 9});
  const at::Tensor found = attend_kept(q, k, v, kept), weight = random("w", {2, 4, 9, 16}, 1);
  found.mul(weight).sum().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& x : {q, k, v}) gradients.push_back(x.grad().clone()), x.mutable_grad() = at::Tensor();
  const at::Tensor wanted = ops::attention(q, k, v);
  wanted.mul(weight).sum().backward();
  EXPECT_LT(tensor::max_abs_difference(found, wanted), 1e-5);
  for (size_t i = 0; const at::Tensor& x : {q, k, v})
    EXPECT_LT(tensor::max_abs_difference(gradients[i++], x.grad()), 1e-5);
}

TEST(Ngrams, RowsOfTheReleasedModelAreThosePublished) {
  arch::Ngrams g{.longest = 3, .heads = 8, .width = 2560, .taps = 4, .base = 20'000'000, .divisor = 128, .seed = 1234};
  g.end = 248044;
  const arch::NgramHash hash = arch::ngram_hash(g, 0, 248320);
  EXPECT_EQ(hash.multipliers, (std::vector<int64_t>{23703573157769, 20109073645365, 8052911324071}));
  EXPECT_EQ(hash.sizes.front(), 20000003);
  EXPECT_EQ(hash.sizes.back(), 20000171);
  EXPECT_EQ(hash.rows, 320001536);
  const std::vector<int64_t> wanted{16410909,  39682429,  55103279,  60931720,  87006904,  116506179, 131512017,
                                    152932897, 169641436, 182022480, 209277433, 237891023, 256841529, 277007269,
                                    290665954, 300984276, 19556458,  22264623,  53735970,  65927109,  87927175,
                                    108618915, 139679979, 141138361, 162871545, 189762108, 212811403, 237189125,
                                    244117366, 271377476, 287204615, 306892687};
  const int64_t ids[] = {9707, 1879};
  EXPECT_EQ(ngram_rows(g, hash, {}, ids), wanted);
}

TEST(Ngrams, NoneReachesAcrossAnEndAndWhatWasBeforeMayBeToldApart) {
  const arch::Decoder d = decoder(kExp);
  const arch::NgramHash& hash = d.ngrams.hashes.front();
  auto rows = [&](std::vector<int64_t> before, std::vector<int64_t> ids) {
    return ngram_rows(d.ngrams, hash, before, ids);
  };
  const std::vector<int64_t> whole = rows({}, {7, 2, 9, 11}), heads(whole.begin() + 8, whole.end());
  EXPECT_EQ(heads, rows({}, {9, 11}));      // behind the end of a segment, as at the beginning
  EXPECT_EQ(heads, rows({7, 2}, {9, 11}));  // cut there
  EXPECT_NE(rows({}, {7, 5, 9}), rows({}, {8, 5, 9}));
  const std::vector<int64_t> ended = rows({}, {7, 2});
  EXPECT_NE(std::vector<int64_t>(ended.begin() + 4, ended.end()), rows({}, {2}));  // the end closes its own segment
}

}  // namespace
}  // namespace sf::model
