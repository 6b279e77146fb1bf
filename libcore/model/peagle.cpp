// SPDX-License-Identifier: Apache-2.0
#include "model/peagle.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "base/error.h"
#include "model/rotary.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/linear_soft_cross_entropy.h"
#include "ops/norm.h"
#include "ops/swiglu.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

at::Tensor tensor_of(const std::vector<int64_t>& values) {
  at::Tensor list = at::zeros({std::ssize(values)}, at::kLong);
  std::copy(values.begin(), values.end(), list.mutable_data_ptr<int64_t>());
  return list;
}

struct Setup {
  arch::Peagle draft;
  Eagle3Vocabulary vocabulary;
  PeagleOptions options;
  std::shared_ptr<const Rotary> rotary;
};

Tensors lay_out(const Setup& s, const Tensors& in) {
  PeagleRows found = peagle_rows(in, s.draft, s.vocabulary, s.options);
  SF_CHECK(!found.label_rows.empty(), Exit::kSoftware, "a micro-batch without a trained label");
  at::Tensor cod = at::zeros({std::ssize(found.rows), 3}, at::kLong);
  int64_t* to = cod.mutable_data_ptr<int64_t>();
  for (const PeagleRows::Row& row : found.rows) *to++ = row.row, *to++ = row.anchor, *to++ = row.depth;
  return {{"cod", cod},
          {"token_ids", tensor_of(found.token_ids)},
          {"label_rows", tensor_of(found.label_rows)},
          {"teacher_rows", tensor_of(found.teacher_rows)},
          {"label_depths", tensor_of(found.label_depths)}};
}

Tensors input(const Tensors& p, const Tensors& in) {
  const at::Tensor &states = in.at("hidden_state"), &cod = in.at("cod");
  auto row = cod.accessor<int64_t, 2>();
  std::vector<int64_t> slots, from;  // of depth 0: the state; of every row: which projected state, 0 for the mask's
  for (int64_t n = 0; n < cod.size(0); ++n) {
    if (row[n][2] == 0) slots.push_back(row[n][0] * states.size(1) + row[n][1]);
    from.push_back(row[n][2] == 0 ? std::ssize(slots) : 0);
  }
  const at::Tensor &weight = p.at("fc.weight"), &table = p.at("embed_tokens.weight");
  at::Tensor captured =
      tensor::beside(tensor::select(states.reshape({-1, states.size(2)}), 0, tensor_of(slots)), weight);
  at::Tensor projected = ops::linear(at::cat({p.at("mask_hidden").view({1, -1}), captured}, 0), weight);
  return {{"embedded", at::embedding(table, tensor::beside(in.at("token_ids"), table))},
          {"hidden.0", tensor::select(projected, 0, tensor_of(from))}};
}

// The rows of one batch row: where each depth begins and ends, and their anchors.
struct Chain {
  struct Depth {
    int64_t first = 0;  // among all rows
    std::vector<int64_t> anchors;
  };
  std::vector<Depth> depths;
};

std::vector<Chain> chains(const at::Tensor& cod) {
  std::vector<Chain> found;
  auto row = cod.accessor<int64_t, 2>();
  for (int64_t n = 0; n < cod.size(0); ++n) {
    if (n == 0 || row[n][0] != row[n - 1][0]) found.emplace_back();
    std::vector<Chain::Depth>& depths = found.back().depths;
    if (row[n][2] == std::ssize(depths)) depths.push_back({n, {}});
    depths.back().anchors.push_back(row[n][1]);
  }
  return found;
}

class Layer {
 public:
  Layer(std::shared_ptr<const Setup> setup, int64_t index)
      : setup_(std::move(setup)), d_(setup_->draft), index_(index), at_("layers." + std::to_string(index) + ".") {}

  Tensors operator()(const Tensors& p, const Tensors& in) const {
    const at::Tensor& before = in.at("hidden." + std::to_string(index_));
    at::Tensor residual = before, x = norm(p, index_ == 0 ? in.at("embedded") : before, "input_layernorm");
    if (index_ == 0) {
      at::Tensor carried = norm(p, before, "hidden_norm");
      if (d_.norm_before_residual) residual = carried;
      x = at::cat({x, carried}, 1);
    }
    at::Tensor h = residual.add(attention(p, in.at("cod"), x)), y = norm(p, h, "post_attention_layernorm");
    at::Tensor mixed = ops::swiglu(project(p, y, "mlp.gate_proj"), project(p, y, "mlp.up_proj"));
    return {{"hidden." + std::to_string(index_ + 1), h.add(project(p, mixed, "mlp.down_proj"))}};
  }

 private:
  at::Tensor norm(const Tensors& p, const at::Tensor& x, const char* module) const {
    return ops::rms_norm(x, p.at(at_ + module + ".weight"), d_.rms_eps);
  }
  at::Tensor project(const Tensors& p, const at::Tensor& x, const char* module) const {
    return ops::linear(x, p.at(at_ + module + ".weight"));
  }
  at::Tensor heads(const at::Tensor& rows, int64_t count) const {
    return rows.view({rows.size(0), count, d_.head_dim}).transpose(0, 1);
  }

  at::Tensor attention(const Tensors& p, const at::Tensor& cod, const at::Tensor& x) const {
    at::Tensor positions = cod.select(1, 1).add(cod.select(1, 2)).contiguous();
    ops::RotaryTable table = setup_->rotary->table(positions.max().item<int64_t>() + 1);
    auto turned = [&](const char* module, int64_t count) {
      return ops::apply_rotary(heads(project(p, x, module), count), table, positions);
    };
    at::Tensor q = turned("self_attn.q_proj", d_.heads), k = turned("self_attn.k_proj", d_.kv_heads);
    at::Tensor v = heads(project(p, x, "self_attn.v_proj"), d_.kv_heads);
    std::vector<at::Tensor> seen;
    for (const Chain& chain : chains(cod))
      for (size_t depth = 0; depth < chain.depths.size(); ++depth) seen.push_back(attend(q, k, v, chain, depth));
    at::Tensor merged = at::cat(seen, 1).transpose(0, 1).reshape({x.size(0), d_.heads * d_.head_dim});
    return project(p, merged, "self_attn.o_proj");
  }

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Chain& chain,
                    size_t depth) const {
    const Chain::Depth &own = chain.depths[depth], &first = chain.depths[0];
    auto context = [&](const at::Tensor& t) { return t.narrow(1, first.first, std::ssize(first.anchors)); };
    std::vector<at::Tensor> keys, values;
    for (size_t d = 1; d <= depth; ++d) {
      at::Tensor places = tensor_of(places_of(own.anchors, chain.depths[d]));
      keys.push_back(tensor::select(k, 1, places));
      values.push_back(tensor::select(v, 1, places));
    }
    std::vector<int64_t> begin(own.anchors.size(), 0), end;
    for (int64_t anchor : own.anchors) end.push_back(anchor + 1);
    return ops::attention_of_rows(q.narrow(1, own.first, std::ssize(own.anchors)), context(k), context(v), keys, values,
                                  {begin, end});
  }

  // Where these anchors' rows of another depth are; both ascend, and the depth holds them all.
  static std::vector<int64_t> places_of(const std::vector<int64_t>& anchors, const Chain::Depth& depth) {
    std::vector<int64_t> places;
    size_t at = 0;
    for (int64_t anchor : anchors) {
      while (depth.anchors[at] != anchor) ++at;
      places.push_back(depth.first + static_cast<int64_t>(at));
    }
    return places;
  }

  std::shared_ptr<const Setup> setup_;
  const arch::Peagle& d_;
  int64_t index_;
  std::string at_;
};

Tensors head(const Setup& s, const Tensors& p, const Tensors& in) {
  const at::Tensor &rows = in.at("label_rows"), &from = in.at("teacher_rows"), &depths = in.at("label_depths");
  at::Tensor read = tensor::select(in.at("hidden." + std::to_string(s.draft.layers)), 0, rows);
  const at::Tensor x = ops::rms_norm(read, p.at("norm.weight"), s.draft.rms_eps),
                   &target_head = p.at(arch::kTargetHead);
  // Beyond the row's end (reference quirk only) the teacher is the zero vector: all logits 0.
  at::Tensor known = from.ge(0), place = from.clamp_min(0), states = in.at("final_norm");
  states = states.reshape({-1, states.size(2)}).detach();
  at::Tensor lse = in.at("target_lse").reshape({-1}), top1 = in.at("target_top1").reshape({-1}).index_select(0, place);
  if (!known.all().item<bool>()) {
    place = place.masked_fill(known.logical_not(), states.size(0));
    states = at::cat({states, at::zeros({1, states.size(1)}, states.options())});
    lse = at::cat({lse, at::full({1}, std::log(static_cast<double>(s.draft.vocab)), lse.options())});
    top1 = top1.masked_fill(known.logical_not(), 0);
  }
  const ops::LinearSoftCrossEntropy judged = ops::linear_soft_cross_entropy(
      x, p.at("lm_head.weight"), {tensor::beside(states, target_head), target_head, lse, place},
      at::ones({rows.size(0)}, at::kFloat));
  at::Tensor best = tensor::on_host(judged.argmax), chosen = best.add(s.vocabulary.d2t.index_select(0, best)).eq(top1);
  at::Tensor nll = tensor::on_host(judged.nll), accepted = tensor::on_host(judged.acceptance);
  at::Tensor sums = at::zeros({s.options.depths, 3}, at::kDouble);
  for (int64_t row = 0; row < rows.size(0); ++row) {
    double* sum = sums.mutable_data_ptr<double>() + 3 * depths.const_data_ptr<int64_t>()[row];
    sum[0] += double{nll.const_data_ptr<float>()[row]};
    sum[1] += chosen.const_data_ptr<bool>()[row];
    sum[2] += double{accepted.const_data_ptr<float>()[row]};
  }
  return {{"loss", judged.loss.mul(tensor::beside(in.at("label_weight"), judged.loss))}, {"depth_sums", sums}};
}

}  // namespace

std::vector<Segment> peagle_segments(const arch::Peagle& draft, const Eagle3Vocabulary& vocabulary,
                                     const PeagleOptions& options) {
  SF_CHECK(draft.mask_token >= 0, Exit::kConfig, "this P-EAGLE draft names no mask_token_id");
  SF_CHECK(options.depths >= 1 && options.depths <= 64, Exit::kConfig, "training.num_depths is {}, wanted 1 to 64",
           options.depths);
  Eagle3Vocabulary own{vocabulary.t2d.to(at::kBool).contiguous(), vocabulary.d2t.to(at::kLong).contiguous()};
  auto setup = std::make_shared<const Setup>(
      Setup{draft, own, options, std::make_shared<const Rotary>(draft.rope, draft.head_dim, draft.max_positions)});
  std::vector<Segment> segments;
  int64_t layer = 0;
  for (const arch::Segment& part : arch::describe_training(draft).segments) {
    Segment segment{part.name, part.parameters, part.reads, part.writes, {}, {}};
    if (part.name == "rows")
      segment.forward = [setup](const Tensors&, const Tensors& in) { return lay_out(*setup, in); };
    else if (part.name == "input")
      segment.forward = [](const Tensors& p, const Tensors& in) { return input(p, in); };
    else if (part.name == "head")
      segment.forward = [setup](const Tensors& p, const Tensors& in) { return head(*setup, p, in); };
    else
      segment.forward = Layer(setup, layer++);
    segments.push_back(std::move(segment));
  }
  return segments;
}

}  // namespace sf::model
