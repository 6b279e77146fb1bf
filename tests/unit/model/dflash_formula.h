// SPDX-License-Identifier: Apache-2.0
// A toy draft of blocks, and DFlash's step written a second time from the formulas in fp64.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "model/dflash.h"
#include "tensor/threads.h"

namespace sf::model::test {

inline arch::Dflash toy_draft() {
  arch::Dflash d;
  d.vocab = 23, d.hidden = 12, d.intermediate = 10, d.layers = 2, d.heads = 4, d.kv_heads = 2, d.head_dim = 6;
  d.max_positions = 64, d.block = 4, d.mask_token = 21, d.capture_layers = {2, 5}, d.rope.theta = 100, d.bias = true;
  return d;
}

inline at::Tensor random(const std::string& name, std::vector<int64_t> shape, double middle = 0, double spread = 0.4) {
  Rng rng(17, name);
  at::Tensor made = at::zeros(shape, at::kDouble);
  for (int64_t i = 0; i < made.numel(); ++i)
    made.mutable_data_ptr<double>()[i] =
        static_cast<float>(middle + spread * rng.normal(0, static_cast<uint64_t>(i)));  // exact in fp32
  return made;
}

struct Toy {
  arch::Dflash draft = toy_draft();
  Tensors weights, batch;  // fp64

  Toy() : Toy(toy_draft(), arch::describe_training(toy_draft(), false)) {}
  // Of a family built on it.
  Toy(const arch::Dflash& blocks, const arch::ModelSpec& spec) : draft(blocks) {
    tensor::set_threads(1);
    for (const arch::Parameter& p : spec.parameters)
      weights[p.name] = random(p.name, p.shape, p.name.ends_with("norm.weight") ? 1 : 0).set_requires_grad(p.trainable);
    batch["input_ids"] = (at::arange(2 * 9, at::kLong) * 7 % 19).view({2, 9});
    batch["loss_mask"] = at::tensor({0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0}, at::kLong).view({2, 9});
    batch["lengths"] = at::tensor({9, 6}, at::kLong);
    batch["anchors"] = at::tensor({2, 3, 7, 1, -1, -1}, at::kLong).view({2, 3});
    batch["hidden_states"] = random("states", {2, 9, 24}, 0, 1);
    batch["slot_weights"] = at::tensor({0.0, 0.25, 0.125, 0.0625}, at::kDouble);
  }
};

// The formulas of eagle_dflash 2.2 to 2.5 in fp64, every slot of every block, with the dense mask. The second row has
// one block only.
class Formula {
 public:
  // What a family puts around a sublayer, by the prefix of its parameters.
  using Around = std::function<at::Tensor(const std::string& module, const at::Tensor& x,
                                          const std::function<at::Tensor(const at::Tensor&)>& sublayer)>;
  explicit Formula(const Toy& toy, Around around = {}) : t_(toy), d_(toy.draft), around_(std::move(around)) {}

  // Every label: its logits and its loss's place.
  struct Label {
    at::Tensor state;  // [H]
    int64_t row, at, slot;
  };
  std::vector<Label> labels() const {
    std::vector<Label> found;
    for (int64_t b = 0; b < 2; ++b) {
      std::vector<int64_t> anchors = b == 0 ? std::vector<int64_t>{2, 3, 7} : std::vector<int64_t>{1};
      at::Tensor mask = t_.batch.at("loss_mask")[b], rows = states(b, anchors);
      int64_t length = t_.batch.at("lengths")[b].item<int64_t>();
      for (size_t n = 0; n < anchors.size(); ++n)
        for (int64_t k = 1; k < d_.block; ++k) {
          int64_t at = anchors[n] + k;
          if (at < length && mask[at].item<int64_t>() != 0)
            found.push_back({rows[static_cast<int64_t>(n) * d_.block + k], b, at, k});
        }
    }
    return found;
  }
  int64_t token(int64_t row, int64_t at) const { return t_.batch.at("input_ids")[row][at].item<int64_t>(); }
  at::Tensor logits(const Label& label) const { return at::linear(label.state, w(arch::kTargetHead)); }

  at::Tensor loss() const {
    at::Tensor total = at::zeros({}, at::kDouble);
    for (const Label& label : labels()) {
      at::Tensor row = at::log_softmax(logits(label), 0);
      total = total - row[token(label.row, label.at)] * t_.batch.at("slot_weights")[label.slot];
    }
    return total;
  }

 private:
  const at::Tensor& w(const std::string& name) const { return t_.weights.at(name); }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return x * at::rsqrt(x.pow(2).mean(-1, true) + d_.rms_eps) * w(name + ".weight");
  }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    auto bias = t_.weights.find(name + ".bias");
    at::Tensor y = at::linear(x, w(name + ".weight"));
    return bias == t_.weights.end() ? y : y + bias->second;
  }
  // [rows, n * hd] -> [n, rows, hd], turned.
  at::Tensor heads(const at::Tensor& x, const std::string& module, const at::Tensor& positions) const {
    at::Tensor h = x.view({x.size(0), -1, d_.head_dim});
    if (module.empty()) return h.transpose(0, 1);
    h = norm(h, module).transpose(0, 1);
    int64_t half = d_.head_dim / 2;
    at::Tensor angle =
        positions.to(at::kDouble).view({-1, 1}) *
        at::exp(at::arange(half, at::kDouble) * (-2.0 / d_.head_dim * std::log(d_.rope.theta))).view({1, -1});
    at::Tensor a = h.narrow(2, 0, half), b = h.narrow(2, half, half), c = angle.cos(), s = angle.sin();
    return at::cat({a * c - b * s, b * c + a * s}, 2);
  }
  at::Tensor states(int64_t b, const std::vector<int64_t>& anchors) const {
    std::vector<int64_t> ids, at;
    for (int64_t anchor : anchors)
      for (int64_t k = 0; k < d_.block; ++k) {
        ids.push_back(k == 0 ? t_.batch.at("input_ids")[b][anchor].item<int64_t>() : d_.mask_token);
        at.push_back(anchor + k);
      }
    int64_t slots = std::ssize(ids), context = 9;
    auto mask_of = [&](int64_t window) {
      at::Tensor seen = at::zeros({slots, context + slots}, at::kBool);
      for (int64_t r = 0; r < slots; ++r)
        for (int64_t j = 0; j < context + slots; ++j) {
          int64_t anchor = anchors[static_cast<size_t>(r / d_.block)], o = r % d_.block;
          bool whole = j < context ? j < anchor : (j - context) / d_.block == r / d_.block;
          bool near = window == 0 || (j < context ? j >= anchor + o - (window - 1) : (j - context) % d_.block <= o);
          seen[r][j] = whole && near;
        }
      return seen;
    };
    at::Tensor positions = at::cat({at::arange(context, at::kLong), at::tensor(at, at::kLong)});
    at::Tensor ctx = norm(linear(t_.batch.at("hidden_states")[b], "fc"), "hidden_norm");
    at::Tensor h = at::embedding(w(arch::kTargetEmbedding), at::tensor(ids, at::kLong));
    for (int64_t i = 0; i < d_.layers; ++i) {
      at::Tensor seen = mask_of(d_.windows.empty() ? 0 : d_.windows[static_cast<size_t>(i)]);
      h = layer("layers." + std::to_string(i) + ".", h, ctx, seen, positions);
    }
    return norm(h, "norm");
  }
  at::Tensor layer(const std::string& at, at::Tensor h, const at::Tensor& ctx, const at::Tensor& seen,
                   const at::Tensor& positions) const {
    auto filtered = [&](const char* module, const at::Tensor& x, const auto& sublayer) {
      return around_ ? around_(at + module, x, sublayer) : sublayer(x);
    };
    h = h + filtered("attention_conv.", norm(h, at + "input_layernorm"),
                     [&](const at::Tensor& n) { return attention(at + "self_attn.", n, ctx, seen, positions); });
    return h + filtered("mlp_conv.", norm(h, at + "post_attention_layernorm"), [&](const at::Tensor& x) {
             at::Tensor mixed = at::silu(linear(x, at + "mlp.gate_proj")) * linear(x, at + "mlp.up_proj");
             return linear(mixed, at + "mlp.down_proj");
           });
  }
  at::Tensor attention(const std::string& self, const at::Tensor& n, const at::Tensor& ctx, const at::Tensor& seen,
                       const at::Tensor& positions) const {
    at::Tensor both = at::cat({ctx, n});
    int64_t groups = d_.heads / d_.kv_heads;
    at::Tensor q = heads(linear(n, self + "q_proj"), self + "q_norm", positions.slice(0, ctx.size(0)));
    at::Tensor k = heads(linear(both, self + "k_proj"), self + "k_norm", positions).repeat_interleave(groups, 0);
    at::Tensor v = heads(linear(both, self + "v_proj"), "", positions).repeat_interleave(groups, 0);
    at::Tensor raw = at::matmul(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(d_.head_dim));
    at::Tensor mixed = at::matmul(at::softmax(raw.masked_fill(seen.logical_not(), -INFINITY), -1), v);
    return linear(mixed.transpose(0, 1).reshape({n.size(0), -1}), self + "o_proj");
  }

  const Toy& t_;
  const arch::Dflash& d_;
  Around around_;
};

// The chain without an engine: every segment on all boundaries so far.
inline Tensors run_segments(const Toy& toy, Tensors& parameters, const std::vector<Segment>& segments) {
  Tensors all;
  for (const auto& [name, value] : toy.batch) all[name] = value.is_floating_point() ? value.to(at::kFloat) : value;
  for (const auto& [name, value] : toy.weights)
    parameters[name] = value.detach().to(at::kFloat).set_requires_grad(value.requires_grad());
  for (const Segment& segment : segments)
    for (auto& [name, value] : segment.forward(parameters, all)) all[name] = value;
  return all;
}

// Loss and gradients of the segments against the formula's. Bound, of the largest gradient of a parameter: fp32 sums of
// a few dozen terms, two layers deep.
inline void expect_equal(const Toy& toy, const Tensors& parameters, const at::Tensor& loss, const at::Tensor& wanted,
                         double bound = 2e-6) {
  EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 1e-6 * wanted.item<double>());
  for (const auto& [name, weight] : toy.weights) {
    if (!weight.requires_grad()) continue;
    at::Tensor ours = torch::autograd::grad({loss}, {parameters.at(name)}, {}, true)[0];
    at::Tensor theirs = torch::autograd::grad({wanted}, {weight}, {}, true)[0];
    double largest = theirs.abs().max().item<double>();
    EXPECT_LT(ours.to(at::kDouble).sub(theirs).abs().max().item<double>(), bound * std::max(largest, 1.)) << name;
    EXPECT_GT(largest, 1e-4) << name;
  }
}

}  // namespace sf::model::test
