// SPDX-License-Identifier: Apache-2.0
// The shadow of model/peagle.cpp.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "plan/shadow_ops.h"
#include "plan/work.h"

namespace sf::plan {
namespace {

class Peagle {
 public:
  Peagle(const arch::Peagle& draft, const arch::ModelSpec& spec, const Schedule& plan, const PeagleBatch& batch)
      : d_(draft), spec_(spec), plan_(plan), b_(batch), all_(batch.all()), ops_(tape_) {
    labels_ = std::accumulate(b_.labels.begin(), b_.labels.end(), int64_t{0});
  }

  uint64_t run() {
    std::vector<ShadowSegment> segments;
    for (const arch::Segment& segment : spec_.segments) segments.push_back({part(segment), {}});
    ShadowPass(tape_, spec_, plan_, std::move(segments)).run({}, "loss");
    return with_margin(tape_);
  }

 private:
  using Forward = std::function<NamedShades(const NamedShades& p, const NamedShades& in)>;
  Forward part(const arch::Segment& segment) {
    if (segment.name == "rows") return [this](const auto&, const auto&) { return rows(); };
    if (segment.name == "input") return [this](const auto& p, const auto&) { return input(p); };
    if (segment.name == "head")
      return [this, last = segment.reads[0]](const auto& p, const auto& in) { return head(p, in.at(last)); };
    return [this, index = layers_++](const auto& p, const auto& in) { return layer(p, in, index); };
  }

  Shade integers(int64_t count) { return tape_.make({count}, Dtype::kI64); }
  Dtype compute() const { return plan_.options.compute; }

  NamedShades rows() {
    return {{"cod", integers(3 * all_)},
            {"token_ids", integers(all_)},
            {"label_rows", integers(labels_)},
            {"teacher_rows", integers(labels_)},
            {"label_depths", integers(labels_)}};
  }

  NamedShades input(const NamedShades& p) {
    const int64_t width = 3 * d_.target_hidden, first = b_.first();
    Shade captured = tape_.make({first, width}, compute());
    Shade states = ops_.joined({p.at("mask_hidden").as({1, width}), captured}, {first + 1, width});
    Shade projected = ops_.linear(states, p.at("fc.weight"));
    Shade embedded = ops_.embedding(p.at("embed_tokens.weight"), {all_});
    return {{"embedded", embedded}, {"hidden.0", ops_.index_select(projected, all_)}};
  }

  NamedShades layer(const NamedShades& p, const NamedShades& in, int64_t index) {
    const std::string at = "layers." + std::to_string(index) + ".";
    auto weight = [&](const char* module) -> const Shade& { return p.at(at + module + ".weight"); };
    const Shade& before = in.at("hidden." + std::to_string(index));
    Shade residual = before, x = ops_.norm(index == 0 ? in.at("embedded") : before, weight("input_layernorm"));
    if (index == 0) {
      Shade carried = ops_.norm(before, weight("hidden_norm"));
      if (d_.norm_before_residual) residual = carried;
      x = ops_.cat_columns({x, carried});
    }
    Shade h = ops_.add(residual, attention(p, at, x)), y = ops_.norm(h, weight("post_attention_layernorm"));
    Shade up = ops_.linear(y, weight("mlp.up_proj")), gate = ops_.linear(y, weight("mlp.gate_proj"));
    Shade down = ops_.linear(ops_.swiglu(gate, up), weight("mlp.down_proj"));
    return {{"hidden." + std::to_string(index + 1), ops_.add(h, down)}};
  }

  Shade attention(const NamedShades& p, const std::string& at, const Shade& x) {
    auto heads = [&](const char* module, int64_t count) {
      Shade packed = ops_.linear(x, p.at(at + "self_attn." + module + ".weight"));
      return ops_.split_heads(packed, {count, all_, d_.head_dim});
    };
    // q and k share one list of positions.
    Shade q = ops_.rotary(heads("q_proj", d_.heads)), k = ops_.rotary(heads("k_proj", d_.kv_heads), false);
    Shade v = heads("v_proj", d_.kv_heads);
    Shades seen;
    for (const std::vector<int64_t>& chain : b_.rows)
      for (size_t depth = 0; depth < chain.size(); ++depth) seen.push_back(attend(q, k, v, chain, depth));
    Shade joined = ops_.joined(seen, {d_.heads, all_, d_.head_dim});
    joined.dense = false;  // head by head: what merges them copies
    Shade merged = ops_.merge_heads(joined, {all_, d_.heads * d_.head_dim});
    joined = {}, seen.clear();
    return ops_.linear(merged, p.at(at + "self_attn.o_proj.weight"));
  }

  Shade attend(const Shade& q, const Shade& k, const Shade& v, const std::vector<int64_t>& chain, size_t depth) {
    const int64_t count = chain[depth];
    Shades keys{ops_.narrow(k, {1, d_.kv_heads, chain[0], d_.head_dim})};
    Shades values{ops_.narrow(v, {1, d_.kv_heads, chain[0], d_.head_dim})};
    const Shape each{1, d_.kv_heads, count, d_.head_dim};
    auto chosen = [&](const Shade& of) {
      return ops_.index_select(of.as({all_, d_.kv_heads * d_.head_dim}), count).as(each);
    };
    for (size_t d = 1; d <= depth; ++d) {
      keys.push_back(chosen(k));
      values.push_back(chosen(v));
    }
    return ops_.attention(ops_.narrow(q, {1, d_.heads, count, d_.head_dim}), keys, values);
  }

  NamedShades head(const NamedShades& p, const Shade& last) {
    Shade read = ops_.index_select(last, labels_);
    Shade x = ops_.norm(read, p.at("norm.weight"));
    Shade place = integers(labels_), top1 = integers(labels_);
    // Every label is one of the first depth's.
    const int64_t teachers = std::min(ShadowOps::head_block(labels_, d_.draft_vocab), b_.labels[0]);
    Shade loss = ops_.linear_soft_cross_entropy(x, p.at("lm_head.weight"), d_.target_hidden, teachers);
    Shade chosen = integers(labels_);
    Shade sums = tape_.make({std::ssize(b_.labels), 3}, Dtype::kF64);
    return {{"loss", ops_.scaled(loss)}, {"depth_sums", sums}};
  }

  const arch::Peagle& d_;
  const arch::ModelSpec& spec_;
  const Schedule& plan_;
  const PeagleBatch& b_;
  int64_t all_, labels_ = 0, layers_ = 0;
  Tape tape_;
  ShadowOps ops_;
};

}  // namespace

int64_t PeagleBatch::all() const {
  int64_t sum = 0;
  for (const std::vector<int64_t>& chain : rows) sum = std::accumulate(chain.begin(), chain.end(), sum);
  return sum;
}

int64_t PeagleBatch::first() const {
  int64_t sum = 0;
  for (const std::vector<int64_t>& chain : rows) sum += chain.empty() ? 0 : chain[0];
  return sum;
}

PeagleBatch full_peagle_batch(int64_t rows, int64_t width, std::span<const double> shares) {
  std::vector<int64_t> chain{width};
  for (double share : shares) {
    auto drawn = static_cast<int64_t>(static_cast<double>(width - std::ssize(chain)) * share);
    if (drawn <= 0) break;
    chain.push_back(std::min(drawn, chain.back()));
  }
  PeagleBatch batch;
  batch.rows.assign(static_cast<size_t>(rows), chain);
  for (int64_t count : chain) batch.labels.push_back(rows * count);
  return batch;
}

uint64_t peagle_work(const arch::Peagle& draft, const arch::ModelSpec& spec, const Schedule& plan,
                     const PeagleBatch& batch) {
  return Peagle(draft, spec, plan, batch).run();
}

}  // namespace sf::plan
