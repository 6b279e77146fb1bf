// SPDX-License-Identifier: Apache-2.0
#include "plan/shadow_blocks.h"

#include <algorithm>
#include <utility>

namespace sf::plan {
namespace {

class Layer {
 public:
  Layer(ShadowOps& ops, const arch::Dflash& draft, const DflashBatch& batch, int64_t index)
      : ops_(ops), d_(draft), batch_(batch), index_(index), prefix_("layers." + std::to_string(index) + ".") {}
  Layer within(ShadowAround around, bool scaled) && {
    around_ = std::move(around);
    scaled_ = scaled && index_ == 0;
    return std::move(*this);
  }

  NamedShades operator()(const NamedShades& p, const NamedShades& in) const {
    Shade before = in.at("hidden." + std::to_string(index_));
    if (scaled_) before = ops_.scaled(before);
    Shade h = ops_.add(before, filtered(p, "attention_conv.", norm(p, before, "input_layernorm"),
                                        [&](const Shade& x) { return attention(p, in.at("context"), x); }));
    Shade mixed =
        filtered(p, "mlp_conv.", norm(p, h, "post_attention_layernorm"), [&](const Shade& x) { return mlp(p, x); });
    return {{"hidden." + std::to_string(index_ + 1), ops_.add(h, mixed)}};
  }

 private:
  Shade filtered(const NamedShades& p, const char* module, const Shade& x,
                 const std::function<Shade(const Shade&)>& sublayer) const {
    return around_ ? around_(p, prefix_ + module, x, sublayer) : sublayer(x);
  }
  Shade norm(const NamedShades& p, const Shade& x, const std::string& module) const {
    return ops_.norm(x, p.at(prefix_ + module + ".weight"));
  }
  Shade project(const NamedShades& p, const Shade& x, const std::string& module) const {
    bool biased = d_.bias && module.starts_with("self_attn");
    return ops_.linear(x, p.at(prefix_ + module + ".weight"), biased ? &p.at(prefix_ + module + ".bias") : nullptr);
  }
  // Some rows of [n, heads hd], normed by head and turned: [heads, rows, hd].
  Shade turned(const NamedShades& p, const Shade& x, int64_t rows, int64_t count, const std::string& module) const {
    Shade split = ops_.reshape(ops_.narrow(x, {rows, x.shape[1]}), {rows, count, d_.head_dim});
    return ops_.rotary(ops_.transposed(norm(p, split, module)).as({count, rows, d_.head_dim}));
  }
  Shade heads(const Shade& x, int64_t rows) const {
    return ops_.split_heads(ops_.narrow(x, {rows, x.shape[1]}), {d_.kv_heads, rows, d_.head_dim});
  }
  Shade attention(const NamedShades& p, const Shade& context, const Shade& x) const {
    Shade both = ops_.cat_rows({context, x});
    Shade q = project(p, x, "self_attn.q_proj");
    Shade k = project(p, both, "self_attn.k_proj"), v = project(p, both, "self_attn.v_proj");
    Shades seen;
    for (const DflashBatch::Row& row : batch_.rows) {
      int64_t slots = row.blocks * d_.block;
      Shade v_own = heads(v, slots), k_own = turned(p, k, slots, d_.kv_heads, "self_attn.k_norm");
      Shade v_before = heads(v, row.context);
      Shade k_before = turned(p, k, row.context, d_.kv_heads, "self_attn.k_norm");
      Shade q_own = turned(p, q, slots, d_.heads, "self_attn.q_norm");
      bool windowed = !d_.windows.empty() && d_.windows[static_cast<size_t>(index_)] > 0;
      Shade out = windowed ? ops_.windowed_blocks(q_own, k_before, v_before, k_own, v_own, row.blocks)
                           : ops_.attention_of_blocks(q_own, k_before, v_before, k_own, v_own, row.blocks);
      seen.push_back(ops_.merge_heads(out, {slots, d_.heads * d_.head_dim}));
    }
    return project(p, ops_.cat_rows(seen), "self_attn.o_proj");
  }
  Shade mlp(const NamedShades& p, const Shade& x) const {
    Shade up = project(p, x, "mlp.up_proj"), gate = project(p, x, "mlp.gate_proj");
    return project(p, ops_.swiglu(gate, up), "mlp.down_proj");
  }

  ShadowOps& ops_;
  const arch::Dflash& d_;
  const DflashBatch& batch_;
  int64_t index_;
  std::string prefix_;
  ShadowAround around_;
  bool scaled_ = false;
};

}  // namespace

NamedShades BlockChain::blocks() {
  const DflashBatch& batch = run_.batch;
  return {{"blocks", integers(2 * batch.blocks())},
          {"slot_ids", integers(batch.blocks() * d_.block)},
          {"context_rows", integers(batch.context())},
          {"label_slots", integers(batch.labels)},
          {"label_ids", integers(batch.labels)},
          {"label_offsets", integers(batch.labels)},
          {"token_ids", integers(batch.blocks() * d_.block)}};
}

NamedShades BlockChain::context(const NamedShades& p) {
  auto captured = static_cast<int64_t>(d_.capture_layers.size());
  Shade read = tape_.make({run_.batch.context(), captured * d_.hidden}, run_.plan.options.compute);
  return {{"context", ops_.norm(ops_.linear(read, p.at("fc.weight")), p.at("hidden_norm.weight"))}};
}

ShadowSegment BlockChain::norm(const arch::Segment& segment) {
  bool labels_alone = std::find(segment.reads.begin(), segment.reads.end(), "label_slots") != segment.reads.end();
  return {[this, last = segment.reads[0], labels_alone](const auto& p, const auto& in) -> NamedShades {
            Shade read = in.at(last);
            if (labels_alone) read = ops_.index_select(read, run_.batch.labels);
            return {{"states", ops_.norm(read, p.at("norm.weight"))}};
          },
          {}};
}

NamedShades BlockChain::sum_up(const Shades& terms, int64_t columns) {
  const int64_t labels = run_.batch.labels;
  Shade weights = tape_.make({labels}, Dtype::kF32), each = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) each = ops_.add(each, ops_.scaled(terms[i]));
  Shade weighted = ops_.scaled(each), measures = tape_.make({labels, columns}, Dtype::kF32);
  return {{"loss", ops_.summed(weighted)}, {"slot_sums", tape_.make({d_.block, columns}, Dtype::kF64)}};
}

ShadowSegment BlockChain::own(const arch::Segment& segment, int64_t& layer) {
  if (segment.name == "blocks") return {[this](const auto&, const auto&) { return blocks(); }, {}};
  if (segment.name == "context") return {[this](const auto& p, const auto&) { return context(p); }, {}};
  if (segment.name.starts_with("layers."))
    return {Layer(ops_, d_, run_.batch, layer++).within(around_, embedding_scaled_), {}};
  if (segment.name == "norm") return norm(segment);
  return {[this, rows = segment.writes[0]](const NamedShades& p, const NamedShades&) -> NamedShades {
            return {{rows, ops_.embedding(p.begin()->second, {run_.batch.blocks() * d_.block})}};
          },
          {}};
}

uint64_t BlockChain::work(const Others& others) {
  std::vector<ShadowSegment> segments;
  int64_t layer = 0;
  for (const arch::Segment& segment : run_.spec.segments) {
    bool known = segment.name == "blocks" || segment.name == "context" || segment.name.starts_with("layers.") ||
                 segment.name.starts_with("embed") || segment.name == "norm";
    segments.push_back(known ? own(segment, layer) : others(segment));
  }
  ShadowPass(tape_, run_.spec, run_.plan, std::move(segments)).run({}, "loss");
  return with_margin(tape_);
}

int64_t DflashBatch::blocks() const {
  int64_t sum = 0;
  for (const Row& row : rows) sum += row.blocks;
  return sum;
}

int64_t DflashBatch::context() const {
  int64_t sum = 0;
  for (const Row& row : rows) sum += row.context;
  return sum;
}

int64_t DflashBatch::longest() const {
  int64_t most = 0;
  for (const Row& row : rows) most = std::max(most, row.context);
  return most;
}

DflashBatch full_dflash_batch(const arch::Dflash& draft, int64_t rows, int64_t width, BlockRows wanted) {
  // An anchor has a token behind it; states before it are its context.
  int64_t blocks = std::clamp<int64_t>(wanted.anchors, 1, std::max<int64_t>(width - 1, 1));
  DflashBatch batch;
  batch.rows.assign(static_cast<size_t>(rows), {blocks, std::max<int64_t>(width - 2, 0)});
  batch.labels = rows * blocks * (draft.block - (wanted.next ? 0 : 1));
  return batch;
}

}  // namespace sf::plan
