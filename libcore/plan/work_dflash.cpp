// SPDX-License-Identifier: Apache-2.0
// The shadow of model/dflash.cpp.
#include <algorithm>
#include <string>
#include <utility>

#include "plan/shadow_ops.h"
#include "plan/work.h"

namespace sf::plan {
namespace {

constexpr int64_t kHeadChunk = TableUse{}.chunk;

class Layer {
 public:
  Layer(Tape& tape, ShadowOps& ops, const arch::Dflash& draft, const DflashBatch& batch, int64_t index)
      : tape_(tape),
        ops_(ops),
        d_(draft),
        batch_(batch),
        index_(index),
        prefix_("layers." + std::to_string(index) + ".") {}

  NamedShades operator()(const NamedShades& p, const NamedShades& in) const {
    const Shade& before = in.at("hidden." + std::to_string(index_));
    Shade normed = norm(p, before, "input_layernorm");
    Shade h = ops_.add(before, attention(p, in.at("context"), normed));
    return {{"hidden." + std::to_string(index_ + 1), ops_.add(h, mlp(p, norm(p, h, "post_attention_layernorm")))}};
  }

 private:
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
      Shade out = ops_.attention_of_blocks(turned(p, q, slots, d_.heads, "self_attn.q_norm"), k_before, v_before, k_own,
                                           v_own, row.blocks);
      seen.push_back(ops_.merge_heads(out, {slots, d_.heads * d_.head_dim}));
    }
    return project(p, ops_.cat_rows(seen), "self_attn.o_proj");
  }
  Shade mlp(const NamedShades& p, const Shade& x) const {
    Shade up = project(p, x, "mlp.up_proj"), gate = project(p, x, "mlp.gate_proj");
    return project(p, ops_.swiglu(gate, up), "mlp.down_proj");
  }

  Tape& tape_;
  ShadowOps& ops_;
  const arch::Dflash& d_;
  const DflashBatch& batch_;
  int64_t index_;
  std::string prefix_;
};

class Chain {
 public:
  Chain(const arch::Dflash& draft, const arch::ModelSpec& spec, const Schedule& plan, const DflashBatch& batch)
      : d_(draft), spec_(spec), plan_(plan), batch_(batch), ops_(tape_) {}

  uint64_t run() {
    std::vector<ShadowSegment> segments;
    int64_t layer = 0;
    for (const arch::Segment& segment : spec_.segments) {
      if (segment.name.starts_with("layers."))
        segments.push_back({Layer(tape_, ops_, d_, batch_, layer++), {}});
      else
        segments.push_back(other(segment));
    }
    ShadowPass(tape_, spec_, plan_, std::move(segments)).run({}, "loss");
    return with_margin(tape_);
  }

 private:
  Shade integers(int64_t count) { return tape_.make({count}, Dtype::kI64); }

  NamedShades blocks() {
    return {{"blocks", integers(2 * batch_.blocks())},    {"slot_ids", integers(batch_.blocks() * d_.block)},
            {"context_rows", integers(batch_.context())}, {"label_slots", integers(batch_.labels)},
            {"label_ids", integers(batch_.labels)},       {"label_offsets", integers(batch_.labels)},
            {"token_ids", integers(batch_.blocks() * d_.block)}};
  }
  NamedShades context(const NamedShades& p) {
    auto captured = static_cast<int64_t>(d_.capture_layers.size());
    Shade read = tape_.make({batch_.context(), captured * d_.hidden}, plan_.options.compute);
    return {{"context", ops_.norm(ops_.linear(read, p.at("fc.weight")), p.at("hidden_norm.weight"))}};
  }
  NamedShades states(const NamedShades& p, const Shade& last) {
    return {{"states", ops_.norm(ops_.index_select(last, batch_.labels), p.at("norm.weight"))}};
  }
  NamedShades judged(const Shade& nll) { return {{"nll", nll}, {"top1", integers(batch_.labels)}}; }
  NamedShades loss(const Shade& nll) {
    Shade right = tape_.make({batch_.labels}, Dtype::kBool), sums = tape_.make({d_.block, 3}, Dtype::kF64);
    Shade weights = tape_.make({batch_.labels}, Dtype::kF32), weighed = ops_.scaled(nll);
    return {{"loss", ops_.summed(weighed)}, {"slot_sums", sums}};
  }

  ShadowSegment other(const arch::Segment& segment) {
    if (segment.name == "blocks") return {[this](const auto&, const auto&) { return blocks(); }, {}};
    if (segment.name == "context") return {[this](const auto& p, const auto&) { return context(p); }, {}};
    if (segment.name == "embed")
      return {[this](const NamedShades& p, const NamedShades&) -> NamedShades {
                return {{"hidden.0", ops_.embedding(p.begin()->second, {batch_.blocks() * d_.block})}};
              },
              {}};
    if (segment.name == "norm")
      return {[this, last = segment.reads[0]](const auto& p, const auto& in) { return states(p, in.at(last)); }, {}};
    if (segment.name == "head") return head();
    return {[this](const auto&, const auto& in) { return loss(in.at("nll")); }, {}};
  }

  ShadowSegment head() {
    std::string_view table = spec_.storage_of(arch::kTargetHead);
    auto same = [&](const Held& held) { return held.name == table && held.exchanged; };
    if (std::none_of(plan_.parameters.begin(), plan_.parameters.end(), same))
      return {[this](const auto&, const NamedShades& in) {
                return judged(ops_.vocabulary_head(in.at("states"), d_.vocab, kHeadChunk));
              },
              {}};
    return {[this](const auto&, const NamedShades& in) {
              kept_ = {in.at("states").detached(), tape_.make({batch_.labels, 4}, Dtype::kI32)};
              return judged(ops_.head_loss(kept_[0], d_.vocab, kHeadChunk));
            },
            [this](const NamedShades&) -> NamedShades {
              NamedShades out{{"states", ops_.head_gradient(kept_[0], d_.vocab, kHeadChunk)}};
              kept_.clear();
              return out;
            }};
  }

  const arch::Dflash& d_;
  const arch::ModelSpec& spec_;
  const Schedule& plan_;
  const DflashBatch& batch_;
  Tape tape_;
  ShadowOps ops_;
  Shades kept_;  // of the head, between its two passes over an exchanged table
};

}  // namespace

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

DflashBatch full_dflash_batch(const arch::Dflash& draft, int64_t rows, int64_t width, int64_t anchors) {
  // An anchor has a token behind it; states before it are its context.
  int64_t blocks = std::clamp<int64_t>(anchors, 1, std::max<int64_t>(width - 1, 1));
  DflashBatch batch;
  batch.rows.assign(static_cast<size_t>(rows), {blocks, std::max<int64_t>(width - 2, 0)});
  batch.labels = rows * blocks * (draft.block - 1);
  return batch;
}

uint64_t dflash_work(const arch::Dflash& draft, const arch::ModelSpec& spec, const Schedule& plan,
                     const DflashBatch& batch) {
  return Chain(draft, spec, plan, batch).run();
}

}  // namespace sf::plan
