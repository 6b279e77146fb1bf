// SPDX-License-Identifier: Apache-2.0
// The shadow of model/eagle3.cpp.
#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "plan/shadow_ops.h"
#include "plan/work.h"

namespace sf::plan {
namespace {

class Unroll {
 public:
  // `ops` outlives the backward pass: what it records points to it.
  Unroll(Tape& tape, ShadowOps& ops, const arch::Eagle3& draft, const Eagle3Steps& steps, Dtype compute,
         const arch::Eagle3Batch& batch)
      : tape_(tape), ops_(ops), d_(draft), steps_(steps), compute_(compute), b_(batch), all_(b_.rows * b_.width) {
    arch::ModelSpec spec = arch::describe_training(draft);
    for (const arch::Parameter& parameter : spec.parameters)
      p_[parameter.name] =
          parameter.trainable ? tape_.leaf(parameter.shape, compute) : tape_.borrowed(parameter.shape, compute);
    int64_t length = b_.width + steps_.unroll;
    for (int i = 0; i < 2; ++i) kept_.push_back(tape_.make({length, d_.head_dim / 2}, Dtype::kF32));
    kept_.push_back(tape_.make({all_ + 1, d_.hidden}, compute));  // rows of the embedding, looked up by another segment
    for (int64_t count : {b_.width, b_.rows}) kept_.push_back(tape_.make({count}, Dtype::kI64));
    for (int64_t count : b_.step_active) kept_.push_back(tape_.make({count}, Dtype::kI64));
  }

  Shade run() {
    Shades hidden, rows;
    for (size_t k = 0; k < b_.step_labels.size(); ++k) {
      hidden.push_back(k == 0 ? first_step() : later_step(hidden.back(), b_.step_active[k]));
      rows.push_back(ops_.index_select(hidden.back(), b_.step_labels[k]));
    }
    Shade all = ops_.cat_rows(rows);
    rows.clear();
    return judge(all);
  }

 private:
  const Shade& parameter(const std::string& name) const { return p_.at(name + ".weight"); }
  Shade linear(const Shade& x, const std::string& name) { return ops_.linear(x, parameter(name)); }
  Shade norm(const Shade& x, const std::string& name) { return ops_.norm(x, parameter(name)); }

  void ask_teacher() {
    Shade known = tape_.make({b_.labels, 1}, Dtype::kF32);
    Shade top1 = tape_.make({b_.labels}, Dtype::kI64), lse = tape_.make({b_.labels}, Dtype::kF32);
    Shade picked = tape_.make({b_.labels, d_.target_hidden}, compute_);
    Shade states = tape_.make({b_.labels, d_.target_hidden}, compute_);
    picked = {};
    teacher_.assign({top1, lse, states});
  }

  Shade judge(const Shade& rows) {
    ask_teacher();
    const int64_t count = rows.shape[0];
    Shade labels = tape_.make({count}, Dtype::kI64), weights = tape_.make({count}, Dtype::kF32);
    Shade x = d_.norm_output ? norm(rows, "norm") : rows;
    Shade loss = steps_.acceptance ? lk(x) : cross_entropy(x);
    // What is looked up and counted for the sums.
    Shades seen{tape_.make({count}, Dtype::kI64), tape_.make({count}, Dtype::kI64), tape_.make({count}, Dtype::kI64)};
    Shade sums = tape_.make({steps_.unroll, 3}, Dtype::kF64);
    return loss;
  }

  Shade cross_entropy(const Shade& x) {
    return ops_.linear_soft_cross_entropy(x, parameter("lm_head"), d_.target_hidden, most_teachers(x.shape[0]));
  }

  // Labels that a block of rows can ask at most: those that few steps reach stand together.
  int64_t most_teachers(int64_t rows) const {
    int64_t left = ShadowOps::head_block(rows, d_.draft_vocab), labels = 0;
    for (size_t k = 0; k < b_.step_labels.size() && left > 0; ++k) {
      const int64_t deeper = k + 1 < b_.step_labels.size() ? b_.step_labels[k + 1] : 0;
      const auto share = static_cast<int64_t>(k) + 1;  // rows of each label that k + 1 steps reach
      const int64_t taken = std::min(b_.step_labels[k] - deeper, (left + share - 1) / share);
      labels += taken;
      left -= taken * share;
    }
    return labels;
  }

  Shade lk(const Shade& x) {
    const int64_t rows = x.shape[0], slice = std::max(kSliceRows, kSliceBytes / (4 * d_.draft_vocab));
    Shade states = tape_.make({rows, d_.target_hidden}, compute_), lse = tape_.make({rows}, Dtype::kF32);
    Shades whole{parameter("lm_head"), p_.at(arch::kTargetHead)};
    Shade alpha = ops_.in_slices({x, states, lse}, whole, slice, [&ops = ops_](const Shades& in) -> Shades {
      Shade z = ops.linear(in[0], in[3]), t = ops.linear(in[1], in[4]);
      return {ops.acceptance(z, t)};
    })[0];
    Shade loss;
    for (int64_t count : b_.step_labels) {
      Shade term = ops_.scaled(ops_.summed(of_rows(ops_.narrow(alpha, {count}))));
      loss = loss.node ? ops_.add(loss, term) : term;
    }
    return steps_.cross_entropy ? ops_.add(loss, cross_entropy(x)) : loss;
  }
  // Masks, weights and logarithms of the acceptance of each row.
  Shade of_rows(const Shade& alpha) { return ops_.scaled(ops_.scaled(ops_.scaled(alpha))); }

  Shade feature() {
    Shade captured = tape_.make({b_.keys, 3 * d_.target_hidden}, compute_);
    if (d_.fc_norm) {
      Shades chunks;
      for (int c = 0; c < 3; ++c) {
        Shade chunk = captured.as({b_.keys, d_.target_hidden});
        chunk.dense = false;
        chunks.push_back(ops_.norm(chunk, p_.at("fc_norm." + std::to_string(c) + ".weight")));
      }
      captured = ops_.cat_columns(chunks);
    }
    return linear(captured, "fc");
  }

  Shade attention_input(int64_t count, const Shade& hidden) {
    Shade ids = tape_.make({count}, Dtype::kI64);
    Shade embedded = norm(tape_.make({count, d_.hidden}, compute_), "midlayer.input_layernorm");
    Shade carried = norm(hidden, "midlayer.hidden_norm");
    return ops_.cat_columns({embedded, carried});
  }

  // [n, heads hd] at its places of [B, heads, S, hd].
  Shade spread(const Shade& packed, int64_t heads) {
    Shade whole = packed.shape[0] == all_ ? packed : ops_.index_copy_into_zeros(packed, all_);
    return ops_.split_heads(whole, {b_.rows, heads, b_.width, d_.head_dim});
  }

  void remember(const Shade& input) {
    {
      Shade packed = linear(input, "midlayer.self_attn.k_proj");
      Shade wide = spread(packed, d_.kv_heads);
      keys_.push_back(ops_.rotary(wide));
    }
    Shade packed = linear(input, "midlayer.self_attn.v_proj");
    values_.push_back(spread(packed, d_.kv_heads));
  }

  Shade attend(const Shade& input) {
    Shade q;
    {
      Shade packed = linear(input, "midlayer.self_attn.q_proj");
      Shade wide = spread(packed, d_.heads);
      q = ops_.rotary(wide);
    }
    Shade seen = ops_.attention(q, keys_, values_);
    Shade merged = ops_.merge_heads(seen, {all_, d_.heads * d_.head_dim});
    if (input.shape[0] != all_) merged = ops_.index_select(merged, input.shape[0]);
    return linear(merged, "midlayer.self_attn.o_proj");
  }

  Shade feed_forward(const Shade& h) {
    Shade x = norm(h, "midlayer.post_attention_layernorm"), mixed;
    {
      Shade up = linear(x, "midlayer.mlp.up_proj"), gate = linear(x, "midlayer.mlp.gate_proj");
      mixed = ops_.swiglu(gate, up);
    }
    Shade down = linear(mixed, "midlayer.mlp.down_proj");
    return ops_.add(h, down);
  }

  Shade first_step() {
    Shade key_slots = tape_.make({b_.keys}, Dtype::kI64), active_in_keys = tape_.make({b_.active}, Dtype::kI64);
    Shade carried = feature();
    Shade input = attention_input(b_.keys, carried);
    remember(input);
    bool whole = b_.keys == b_.active;
    Shade residual = whole ? carried : ops_.index_select(carried, b_.active);
    Shade query = whole ? input : ops_.index_select(input, b_.active);
    Shade attended = attend(query);
    Shade sum = ops_.add(residual, attended);
    return feed_forward(sum);
  }

  Shade later_step(const Shade& before, int64_t count) {
    Shade hidden = count == before.shape[0] ? before : ops_.index_select(before, count);
    Shade input = attention_input(count, hidden);
    remember(input);
    Shade attended = attend(input);
    Shade sum = ops_.add(hidden, attended);
    return feed_forward(sum);
  }

  static constexpr int64_t kSliceRows = 128, kSliceBytes = int64_t{32} << 20;  // as model/slices.h

  Tape& tape_;
  ShadowOps& ops_;
  const arch::Eagle3& d_;
  const Eagle3Steps& steps_;
  Dtype compute_;
  const arch::Eagle3Batch& b_;
  int64_t all_;
  std::map<std::string, Shade> p_;
  Shades kept_, teacher_, keys_, values_;
};

}  // namespace

arch::Eagle3Batch full_eagle3_batch(int64_t rows, int64_t width, int unroll, bool reference_quirks) {
  SF_CHECK(rows >= 1 && width >= 2 && unroll >= 1, Exit::kSoftware, "a micro-batch of {} x {} tokens, {} steps", rows,
           width, unroll);
  // The last token's teacher is unknown; the reference takes it all the same.
  int64_t reach = reference_quirks ? width : width - 1;
  arch::Eagle3Batch batch{rows, width, rows * reach, rows * reach, rows * reach, {}, {}};
  for (int64_t k = 0; k < unroll && k < reach; ++k) {
    batch.step_labels.push_back(rows * (reach - k));
    batch.step_active.push_back(rows * (reach - k));
  }
  return batch;
}

uint64_t eagle3_work(const arch::Eagle3& draft, const Eagle3Steps& steps, Dtype compute,
                     const arch::Eagle3Batch& batch) {
  Tape tape;
  Shade weights = tape.make({steps.unroll}, Dtype::kF32);
  ShadowOps ops(tape);
  Shade loss = Unroll(tape, ops, draft, steps, compute, batch).run();
  Shades seed{tape.make({}, Dtype::kF32)};
  tape.run_backward({loss}, std::move(seed));
  return with_margin(tape);
}

}  // namespace sf::plan
