// SPDX-License-Identifier: Apache-2.0
#include "model/block_backbone.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/rotary.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/swiglu.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

at::Tensor tensor_of(const std::vector<int64_t>& values) {
  at::Tensor list = at::empty({std::ssize(values)}, at::kLong);
  std::copy(values.begin(), values.end(), list.mutable_data_ptr<int64_t>());
  return list;
}

Tensors lay_out(const arch::Dflash& draft, BlockLabels labels, const Tensors& in) {
  DflashBlocks found = dflash_blocks(in, draft, labels);
  SF_CHECK(!found.blocks.empty(), Exit::kSoftware, "a micro-batch without a block");
  at::Tensor blocks = at::empty({std::ssize(found.blocks), 2}, at::kLong);
  int64_t* to = blocks.mutable_data_ptr<int64_t>();
  for (const DflashBlocks::Block& block : found.blocks) *to++ = block.row, *to++ = block.anchor;
  return {{"blocks", blocks},
          {"slot_ids", tensor_of(found.slot_ids)},
          {"token_ids", tensor_of(found.token_ids)},
          {"context_rows", tensor_of(found.context_rows)},
          {"label_slots", tensor_of(found.label_slots)},
          {"label_ids", tensor_of(found.label_ids)},
          {"label_offsets", tensor_of(found.label_offsets)}};
}

Tensors context(const arch::Dflash& draft, const Tensors& p, const Tensors& in) {
  const at::Tensor& states = in.at("hidden_states");
  const at::Tensor& weight = p.at("fc.weight");
  at::Tensor read = tensor::select(states.reshape({-1, states.size(-1)}), 0, in.at("context_rows"));
  return {{"context", ops::rms_norm(ops::linear(tensor::beside(read, weight), weight), p.at("hidden_norm.weight"),
                                    draft.rms_eps)}};
}

// The blocks of one row of the batch, and where their slots and their context lie among all.
struct Stretch {
  std::vector<int64_t> anchors;
  int64_t first_slot = 0, first_context = 0, context = 0;
};

std::vector<Stretch> stretches(const at::Tensor& blocks, int64_t block) {
  std::vector<Stretch> found;
  auto at = blocks.accessor<int64_t, 2>();
  int64_t context = 0;
  for (int64_t n = 0; n < blocks.size(0); ++n) {
    if (n == 0 || at[n][0] != at[n - 1][0]) {
      if (n > 0) context += found.back().context;
      found.push_back({{}, n * block, context, 0});
    }
    found.back().anchors.push_back(at[n][1]);
    found.back().context = std::max(found.back().context, at[n][1]);
  }
  return found;
}

class Layer {
 public:
  Layer(const arch::Dflash& draft, int64_t index, std::shared_ptr<const Rotary> rotary, const BlockFamily& family)
      : d_(draft),
        index_(index),
        prefix_("layers." + std::to_string(index) + "."),
        rotary_(std::move(rotary)),
        around_(family.around),
        scale_(index == 0 ? family.embedding_scale : 1) {}

  Tensors operator()(const Tensors& p, const Tensors& in) const {
    at::Tensor before = in.at("hidden." + std::to_string(index_));
    if (scale_ != 1) before = before.mul(scale_);
    at::Tensor h = before.add(filtered(p, "attention_conv.", norm(p, before, "input_layernorm"),
                                       [&](const at::Tensor& x) { return attention(p, in, x); }));
    at::Tensor mixed = filtered(p, "mlp_conv.", norm(p, h, "post_attention_layernorm"),
                                [&](const at::Tensor& x) { return mlp(p, x); });
    return {{"hidden." + std::to_string(index_ + 1), h.add(mixed)}};
  }

 private:
  at::Tensor filtered(const Tensors& p, const char* module, const at::Tensor& x, const Sublayer& sublayer) const {
    return around_ ? around_(p, prefix_ + module, x, sublayer) : sublayer(x);
  }
  const at::Tensor& parameter(const Tensors& p, const std::string& name) const { return p.at(prefix_ + name); }
  at::Tensor norm(const Tensors& p, const at::Tensor& x, const std::string& module) const {
    return ops::rms_norm(x, parameter(p, module + ".weight"), d_.rms_eps);
  }
  at::Tensor project(const Tensors& p, const at::Tensor& x, const std::string& module, bool biased = false) const {
    at::Tensor bias;
    if (biased) bias = parameter(p, module + ".bias");
    return ops::linear(x, parameter(p, module + ".weight"), bias);
  }
  // [rows, n * hd] -> [n, rows, hd]
  at::Tensor heads(const at::Tensor& rows, int64_t count) const {
    return rows.reshape({rows.size(0), count, d_.head_dim}).transpose(0, 1);
  }
  at::Tensor turned(const Tensors& p, const at::Tensor& rows, int64_t count, const std::string& module,
                    const std::vector<int64_t>& positions, const ops::RotaryTable& table) const {
    at::Tensor normed = norm(p, rows.reshape({rows.size(0), count, d_.head_dim}), module);
    return ops::apply_rotary(normed.transpose(0, 1), table, tensor_of(positions));
  }

  // The context is not normed again here: eagle_dflash 2.2.
  at::Tensor attention(const Tensors& p, const Tensors& in, const at::Tensor& x) const {
    const at::Tensor& states = in.at("context");
    at::Tensor both = at::cat({states, x}, 0), q = project(p, x, "self_attn.q_proj", d_.bias);
    at::Tensor k = project(p, both, "self_attn.k_proj", d_.bias), v = project(p, both, "self_attn.v_proj", d_.bias);
    std::vector<at::Tensor> seen;
    for (const Stretch& row : stretches(in.at("blocks"), d_.block))
      seen.push_back(attend(p, q, k, v, row, states.size(0)));
    return project(p, at::cat(seen, 0), "self_attn.o_proj", d_.bias);
  }

  // One row of the batch: its slots against its context and each block against itself. Rows of k and v before `slots`
  // are the context's.
  at::Tensor attend(const Tensors& p, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Stretch& row,
                    int64_t slots) const {
    std::vector<int64_t> before, inside;
    for (int64_t i = 0; i < row.context; ++i) before.push_back(i);
    for (int64_t anchor : row.anchors)
      for (int64_t o = 0; o < d_.block; ++o) inside.push_back(anchor + o);
    int64_t count = std::ssize(inside), first = slots + row.first_slot;
    ops::RotaryTable table = rotary_->table(row.context + d_.block);
    const std::string q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
    at::Tensor out = ops::attention_of_blocks(
        turned(p, q.narrow(0, row.first_slot, count), d_.heads, q_norm, inside, table),
        turned(p, k.narrow(0, row.first_context, row.context), d_.kv_heads, k_norm, before, table),
        heads(v.narrow(0, row.first_context, row.context), d_.kv_heads),
        turned(p, k.narrow(0, first, count), d_.kv_heads, k_norm, inside, table),
        heads(v.narrow(0, first, count), d_.kv_heads), row.anchors,
        d_.windows.empty() ? 0 : d_.windows[static_cast<size_t>(index_)]);
    return out.transpose(0, 1).reshape({count, d_.heads * d_.head_dim});
  }

  at::Tensor mlp(const Tensors& p, const at::Tensor& x) const {
    at::Tensor mixed = ops::swiglu(project(p, x, "mlp.gate_proj"), project(p, x, "mlp.up_proj"));
    return project(p, mixed, "mlp.down_proj");
  }

  arch::Dflash d_;
  int64_t index_;
  std::string prefix_;
  std::shared_ptr<const Rotary> rotary_;
  Around around_;
  double scale_;
};

void set_look_up(Segment& segment) {
  segment.table = TableCall{TableCall::Kind::kLookUp};
  segment.forward = [ids = segment.reads[0], rows = segment.writes[0]](const Tensors& p, const Tensors& in) {
    const at::Tensor& table = p.at(arch::kTargetEmbedding);
    return Tensors{{rows, at::embedding(table, tensor::beside(in.at(ids), table))}};
  };
}

// States of the slots with a label, where the segment reads which they are; else of all.
void set_norm(Segment& segment, double eps) {
  bool labels_alone = std::find(segment.reads.begin(), segment.reads.end(), "label_slots") != segment.reads.end();
  segment.forward = [last = segment.reads[0], labels_alone, eps](const Tensors& p, const Tensors& in) {
    at::Tensor read = in.at(last);
    if (labels_alone) read = tensor::select(read, 0, in.at("label_slots"));
    return Tensors{{"states", ops::rms_norm(read, p.at("norm.weight"), eps)}};
  };
}

}  // namespace

std::vector<Segment> block_segments(const arch::ModelSpec& spec, const arch::Dflash& draft, BlockLabels labels,
                                    const BlockFamily& family) {
  arch::check_trainable(draft);
  auto rotary = std::make_shared<const Rotary>(draft.rope, draft.head_dim, draft.max_positions);
  std::vector<Segment> segments;
  int64_t layer = 0;
  for (const arch::Segment& part : spec.segments) {
    Segment segment{part.name, part.parameters, part.reads, part.writes, {}};
    if (part.name == "blocks")
      segment.forward = [draft, labels](const Tensors&, const Tensors& in) { return lay_out(draft, labels, in); };
    else if (part.name == "context")
      segment.forward = [draft](const Tensors& p, const Tensors& in) { return context(draft, p, in); };
    else if (part.name.starts_with("layers."))
      segment.forward = Layer(draft, layer++, rotary, family);
    else if (part.name.starts_with("embed"))
      set_look_up(segment);
    else if (part.name == "norm")
      set_norm(segment, draft.rms_eps);
    else
      family.fill(segment);
    SF_ASSERT(segment.forward);
    segments.push_back(std::move(segment));
  }
  return segments;
}

}  // namespace sf::model
