// SPDX-License-Identifier: Apache-2.0
#include "model/eagle3.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/slices.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/linear_soft_cross_entropy.h"
#include "ops/norm.h"
#include "ops/recompute.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "tensor/device.h"

namespace sf::model {
namespace {

at::Tensor index_of(const std::vector<int64_t>& values) {
  at::Tensor index = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), index.mutable_data_ptr<int64_t>());
  return index;
}

// Which indices are computed. A slot is b * S + j. Keys of block 0 are wanted up to the last index that reaches a
// label; everything else only at `active` indices, those from which some step reaches a label, and in step k only at
// those from which it or a later one does: what a step makes is read by its own index alone. Padding is never computed.
struct Layout {
  int64_t rows = 0, width = 0;
  std::vector<int64_t> labels;                        // trained labels, as slots
  std::vector<int64_t> keys, active, active_in_keys;  // slots; positions of the active among the keys
  std::vector<std::vector<int64_t>> step_slots;       // [T]: the active slots that step k computes
  std::vector<std::vector<int64_t>> step_kept;        // [T]: their rows among those of step k - 1; empty: all of them
  std::vector<std::vector<int64_t>> step_rows;        // [T]: rows of step_slots that reach a label in step k ...
  std::vector<std::vector<int64_t>> step_labels;      // ... and the places of these labels in `labels`
  std::vector<int64_t> extent;                        // [B]: keys of the row
};

// `last`, of each slot: the last step that reaches a label from it, or -1.
void add_step(Layout& layout, int k, const std::vector<int64_t>& last) {
  std::vector<int64_t> place(last.size(), -1), kept;
  const std::vector<int64_t>& before = k == 0 ? layout.active : layout.step_slots[k - 1];
  std::vector<int64_t>& slots = layout.step_slots[k];
  for (int64_t i = 0; i < std::ssize(before); ++i) {
    if (last[before[i]] < k) continue;
    place[before[i]] = std::ssize(slots);
    slots.push_back(before[i]);
    kept.push_back(i);
  }
  if (slots.size() != before.size()) layout.step_kept[k] = std::move(kept);
  for (int64_t n = 0; n < std::ssize(layout.labels); ++n) {
    if (k > layout.labels[n] % layout.width) continue;
    layout.step_rows[k].push_back(place[layout.labels[n] - k]);
    layout.step_labels[k].push_back(n);
  }
}

// With `traced`, every step computes all that is active.
void add_active(Layout& layout, int unroll, bool traced) {
  std::vector<int64_t> last(static_cast<size_t>(layout.rows * layout.width), -1);
  for (int64_t label : layout.labels)
    for (int64_t k = 0; k < unroll && k <= label % layout.width; ++k)
      last[label - k] = std::max<int64_t>(last[label - k], traced ? unroll : k);
  layout.extent.assign(layout.rows, 0);
  for (int64_t slot = 0; slot < std::ssize(last); ++slot) {
    if (last[slot] < 0) continue;
    layout.active.push_back(slot);
    layout.extent[slot / layout.width] = slot % layout.width + 1;
  }
  for (auto* each : {&layout.step_slots, &layout.step_kept, &layout.step_rows, &layout.step_labels})
    each->resize(unroll);
  for (int k = 0; k < unroll; ++k) add_step(layout, k, last);
}

Layout lay_out(const Tensors& in, const Eagle3Vocabulary& vocabulary, const Eagle3Options& options, bool traced) {
  Layout layout;
  layout.rows = in.at("input_ids").size(0);
  layout.width = in.at("input_ids").size(1);
  layout.labels = eagle3_labels(in, vocabulary, options).trained;
  SF_ASSERT(!layout.labels.empty());
  add_active(layout, options.unroll, traced);
  auto next = layout.active.begin();
  for (int64_t b = 0; b < layout.rows; ++b)
    for (int64_t j = 0; j < layout.extent[b]; ++j) {
      if (next != layout.active.end() && *next == b * layout.width + j) {
        layout.active_in_keys.push_back(std::ssize(layout.keys));
        ++next;
      }
      layout.keys.push_back(b * layout.width + j);
    }
  return layout;
}

// What the teacher says about each label: its state, top-1 and log-sum-exp.
struct Teacher {
  at::Tensor states, top1, lse;
};

struct Setup {
  arch::Eagle3 draft;
  Eagle3Vocabulary vocabulary;
  Eagle3Options options;
};

class Unroll {
 public:
  Unroll(std::shared_ptr<const Setup> setup, const Tensors& parameters, const Tensors& in, bool traced)
      : setup_(std::move(setup)),
        draft_(setup_->draft),
        vocabulary_(setup_->vocabulary),
        options_(setup_->options),
        p_(parameters),
        in_(in),
        layout_(lay_out(in, vocabulary_, options_, traced)) {
    int64_t length = layout_.width + options_.unroll;
    arch::RopeTable table = arch::rope_table(draft_.rope, draft_.head_dim, draft_.max_positions, length);
    rotary_ = ops::make_rotary(table.inverse_frequency, table.attention_scale, length);
    positions_ = at::arange(layout_.width, at::kLong);
    visible_.key_end = index_of(layout_.extent);
    for (const std::vector<int64_t>& slots : layout_.step_slots) step_slots_.push_back(index_of(slots));
  }

  Tensors run(bool traced) {
    std::vector<at::Tensor> hidden, rows;
    for (int k = 0; k < options_.unroll && !layout_.step_rows[k].empty(); ++k) {
      hidden.push_back(step(hidden.empty() ? at::Tensor() : hidden.back(), k));
      rows.push_back(tensor::select(hidden.back(), 0, index_of(layout_.step_rows[k])));
    }
    Tensors out;
    for (size_t k = 0; traced && k < rows.size(); ++k) trace(out, hidden[k], draft_logits(rows[k]), k);
    // All steps at once: the head, the largest parameter, is read once and gets one gradient.
    const at::Tensor all = at::cat(rows, 0);
    rows.clear();
    Judged judged = judge(all);
    out["loss"] = judged.loss;
    out["step_sums"] = judged.sums;
    return out;
  }

 private:
  const at::Tensor& parameter(std::string_view name) const {
    auto found = p_.find(name);
    SF_ASSERT(found != p_.end());
    return found->second;
  }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return ops::linear(x, parameter(name + ".weight"));
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return ops::rms_norm(x, parameter(name + ".weight"), draft_.rms_eps);
  }
  at::Tensor flat(const char* boundary) const {
    const at::Tensor& t = in_.at(boundary);
    return t.dim() == 3 ? t.reshape({layout_.rows * layout_.width, t.size(2)})
                        : t.reshape({layout_.rows * layout_.width});
  }

  // Where the row lies that step k embeds at these slots: of x[j + 1 + k], or of id 0 beyond the row's end.
  at::Tensor tokens(const std::vector<int64_t>& slots, int k) const {
    at::Tensor lengths = in_.at("lengths").to(at::kLong).contiguous();
    std::vector<int64_t> wanted;
    wanted.reserve(slots.size());
    for (int64_t slot : slots) {
      int64_t at = slot % layout_.width + 1 + k, end = lengths.const_data_ptr<int64_t>()[slot / layout_.width];
      wanted.push_back(at < end ? slot + 1 + k : layout_.rows * layout_.width);
    }
    return index_of(wanted);
  }

  at::Tensor embed(const at::Tensor& places) const { return tensor::select(in_.at("token_rows"), 0, places); }

  Teacher ask_teacher() const {
    at::Tensor state = flat("final_norm"), top1 = flat("target_top1").to(at::kLong).contiguous();
    at::Tensor lse = flat("target_lse").contiguous(), lengths = in_.at("lengths").to(at::kLong).contiguous();
    int64_t count = std::ssize(layout_.labels);
    // Beyond the row's end (reference quirk only) the teacher is the zero vector: all logits 0.
    Teacher teacher{
        {}, at::zeros({count}, at::kLong), at::full({count}, std::log(static_cast<double>(draft_.vocab)), at::kFloat)};
    at::Tensor known = at::zeros({count, 1}, at::kFloat);
    std::vector<int64_t> from(count, 0);
    for (int64_t n = 0; n < count; ++n) {
      int64_t next = layout_.labels[n] + 1;
      if (next % layout_.width == 0 || next % layout_.width >= lengths.const_data_ptr<int64_t>()[next / layout_.width])
        continue;
      from[n] = next;
      known.mutable_data_ptr<float>()[n] = 1;
      teacher.top1.mutable_data_ptr<int64_t>()[n] = top1.const_data_ptr<int64_t>()[next];
      teacher.lse.mutable_data_ptr<float>()[n] = lse.const_data_ptr<float>()[next];
    }
    at::Tensor states = state.index_select(0, index_of(from)).mul(known.to(state.scalar_type()));
    teacher.states = tensor::beside(states.detach(), parameter(arch::kTargetHead));
    return teacher;
  }

  // Features of the three captured layers, joined into the first carried state (1.2).
  at::Tensor feature(const at::Tensor& key_slots) const {
    at::Tensor captured = tensor::beside(tensor::select(flat("hidden_state"), 0, key_slots), parameter("fc.weight"));
    if (draft_.fc_norm) {
      std::vector<at::Tensor> chunks;
      for (int c = 0; c < 3; ++c)
        chunks.push_back(
            norm(captured.narrow(1, c * draft_.target_hidden, draft_.target_hidden), "fc_norm." + std::to_string(c)));
      captured = at::cat(chunks, 1);
    }
    return linear(captured, "fc");
  }

  at::Tensor attention_input(const at::Tensor& ids, const at::Tensor& hidden) const {
    return at::cat({norm(embed(ids), "midlayer.input_layernorm"), norm(hidden, "midlayer.hidden_norm")}, 1);
  }

  // Packed rows [n, heads * hd] -> [B, heads, S, hd], zero where nothing was computed.
  at::Tensor spread(const at::Tensor& packed, const at::Tensor& slots, int64_t heads) const {
    int64_t all = layout_.rows * layout_.width;
    at::Tensor dense =
        packed.size(0) == all
            ? packed
            : at::zeros({all, packed.size(1)}, packed.options()).index_copy(0, tensor::beside(slots, packed), packed);
    return dense.view({layout_.rows, layout_.width, heads, draft_.head_dim}).transpose(1, 2);
  }
  at::Tensor turned(const at::Tensor& heads, int k) const {
    return ops::apply_rotary(heads, rotary_, positions_.add(k));
  }

  at::Tensor attend(const at::Tensor& query_input, int k) const {
    const at::Tensor& slots = step_slots_[k];
    at::Tensor q = turned(spread(linear(query_input, "midlayer.self_attn.q_proj"), slots, draft_.heads), k);
    at::Tensor seen = ops::attention_with_diagonals(q, keys_, values_, visible_);
    int64_t all = layout_.rows * layout_.width;
    at::Tensor merged = seen.transpose(1, 2).reshape({all, draft_.heads * draft_.head_dim});
    if (slots.size(0) != all) merged = tensor::select(merged, 0, slots);
    return linear(merged, "midlayer.self_attn.o_proj");
  }
  void remember(const at::Tensor& input, const at::Tensor& slots, int k) {
    keys_.push_back(turned(spread(linear(input, "midlayer.self_attn.k_proj"), slots, draft_.kv_heads), k));
    values_.push_back(spread(linear(input, "midlayer.self_attn.v_proj"), slots, draft_.kv_heads));
  }
  at::Tensor feed_forward(const at::Tensor& h) const {
    at::Tensor x = norm(h, "midlayer.post_attention_layernorm");
    at::Tensor mixed = ops::swiglu(linear(x, "midlayer.mlp.gate_proj"), linear(x, "midlayer.mlp.up_proj"));
    return h.add(linear(mixed, "midlayer.mlp.down_proj"));
  }

  // The carried state after step k; its keys and values are remembered.
  at::Tensor step(const at::Tensor& hidden, int k) {
    if (!options_.recompute) return k == 0 ? first_step() : later_step(hidden, k);
    std::vector<std::string> names;
    std::vector<at::Tensor> inputs;
    for (const auto& [name, parameter] : p_) {
      if (!name.starts_with("midlayer.") && !(k == 0 && name.starts_with("fc"))) continue;
      names.push_back(name);
      inputs.push_back(parameter);
    }
    if (k > 0) inputs.push_back(hidden);
    inputs.insert(inputs.end(), keys_.begin(), keys_.end());
    inputs.insert(inputs.end(), values_.begin(), values_.end());
    Unroll bare = *this;
    bare.keys_.clear();
    bare.values_.clear();
    for (const std::string& name : names) bare.p_.erase(name);
    std::vector<at::Tensor> out = ops::recompute(
        [bare, names, k](const std::vector<at::Tensor>& given) {
          Unroll again = bare;
          auto next = given.begin();
          for (const std::string& name : names) again.p_[name] = *next++;
          at::Tensor carried = k > 0 ? *next++ : at::Tensor();
          again.keys_.assign(next, next + k);
          again.values_.assign(next + k, next + 2 * k);
          at::Tensor after = k == 0 ? again.first_step() : again.later_step(carried, k);
          return std::vector<at::Tensor>{after, again.keys_.back(), again.values_.back()};
        },
        inputs);
    keys_.push_back(out[1]);
    values_.push_back(out[2]);
    return out[0];
  }

  at::Tensor first_step() {
    at::Tensor key_slots = index_of(layout_.keys), active_in_keys = index_of(layout_.active_in_keys);
    at::Tensor carried = feature(key_slots);
    at::Tensor input = attention_input(tokens(layout_.keys, 0), carried);
    remember(input, key_slots, 0);
    bool all = layout_.keys.size() == layout_.active.size();
    at::Tensor residual = all ? carried : tensor::select(carried, 0, active_in_keys);
    return feed_forward(residual.add(attend(all ? input : tensor::select(input, 0, active_in_keys), 0)));
  }

  at::Tensor later_step(const at::Tensor& before, int k) {
    const std::vector<int64_t>& kept = layout_.step_kept[k];
    at::Tensor hidden = kept.empty() ? before : tensor::select(before, 0, index_of(kept));
    at::Tensor input = attention_input(tokens(layout_.step_slots[k], k), hidden);
    remember(input, step_slots_[k], k);
    return feed_forward(hidden.add(attend(input, k)));
  }

  at::Tensor head_input(const at::Tensor& rows) const { return draft_.norm_output ? norm(rows, "norm") : rows; }
  at::Tensor draft_logits(const at::Tensor& rows) const {
    return ops::linear(head_input(rows), parameter("lm_head.weight"));
  }

  // What became of every judged row, step by step; a step's rows are one run of them.
  struct Verdicts {
    at::Tensor loss;                  // differentiable; weighs each step as it wants
    at::Tensor each, best, accepted;  // [R]: a row's share of its step's sum, the draft's first choice, acceptance
  };
  struct Judged {
    at::Tensor loss, sums;
  };

  Judged judge(const at::Tensor& rows) const {
    const Teacher teacher = ask_teacher();
    at::Tensor step_weights = tensor::on_host(in_.at("step_weights")).to(at::kFloat).contiguous();
    std::vector<int64_t> label_of;
    std::vector<float> weight_of;
    for (size_t k = 0; k < layout_.step_labels.size(); ++k) {
      label_of.insert(label_of.end(), layout_.step_labels[k].begin(), layout_.step_labels[k].end());
      weight_of.resize(label_of.size(), step_weights.const_data_ptr<float>()[k]);
    }
    at::Tensor labels = index_of(label_of), weights = at::empty({std::ssize(weight_of)}, at::kFloat);
    std::ranges::copy(weight_of, weights.mutable_data_ptr<float>());
    const Verdicts found = options_.lk.type == LkLoss::Type::kNone
                               ? cross_entropy(head_input(rows), teacher, labels, weights)
                               : lk(head_input(rows), teacher, labels, weights);
    return {found.loss, sums(found, teacher.top1.index_select(0, labels))};
  }

  at::Tensor sums(const Verdicts& found, const at::Tensor& wanted) const {
    at::Tensor all = at::zeros({options_.unroll, 3}, at::kDouble), best = tensor::on_host(found.best);
    at::Tensor agreed = best.add(vocabulary_.d2t.index_select(0, best)).eq(wanted);
    at::Tensor each = tensor::on_host(found.each).contiguous(), accepted = tensor::on_host(found.accepted).contiguous();
    int64_t row = 0;
    for (size_t k = 0; k < layout_.step_labels.size(); ++k) {
      double* sum = all.mutable_data_ptr<double>() + 3 * k;
      for (const int64_t end = row + std::ssize(layout_.step_labels[k]); row < end; ++row) {
        sum[0] += double{each.const_data_ptr<float>()[row]};
        sum[1] += agreed.const_data_ptr<bool>()[row];
        sum[2] += double{accepted.const_data_ptr<float>()[row]};
      }
    }
    return all;
  }

  ops::LinearSoftCrossEntropy against(const at::Tensor& x, const Teacher& teacher, const at::Tensor& labels,
                                      const at::Tensor& weights, bool metrics) const {
    return ops::linear_soft_cross_entropy(
        x, parameter("lm_head.weight"),
        {teacher.states, parameter(arch::kTargetHead), metrics ? teacher.lse : at::Tensor(), labels}, weights);
  }

  Verdicts cross_entropy(const at::Tensor& x, const Teacher& teacher, const at::Tensor& labels,
                         const at::Tensor& weights) const {
    const ops::LinearSoftCrossEntropy found = against(x, teacher, labels, weights, true);
    return {found.loss, found.nll, found.argmax, found.acceptance};
  }

  // Acceptance of each row, differentiable, and the draft's first choice.
  std::vector<at::Tensor> acceptances(const at::Tensor& x, const Teacher& teacher, const at::Tensor& labels) const {
    const int64_t slice = std::max(kSliceRows, kSliceBytes / (4 * draft_.draft_vocab));
    const at::Tensor own = tensor::beside(labels, x), lse = tensor::beside(teacher.lse, x);
    return in_slices({x, teacher.states.index_select(0, own), lse.index_select(0, own)},
                     {parameter("lm_head.weight"), parameter(arch::kTargetHead)}, slice,
                     [](const std::vector<at::Tensor>& rows, const std::vector<at::Tensor>& heads) {
                       at::Tensor z = ops::linear(rows[0], heads[0]);
                       at::Tensor t = ops::linear(rows[1].detach(), heads[1].detach());
                       return std::vector<at::Tensor>{acceptance(z, t, rows[2]), z.detach().argmax(1)};
                     });
  }

  Verdicts lk(const at::Tensor& x, const Teacher& teacher, const at::Tensor& labels, const at::Tensor& weights) const {
    const std::vector<at::Tensor> seen = acceptances(x, teacher, labels);
    std::vector<at::Tensor> each,
        asked;  // of each step's rows: what alpha makes of them, what their cross-entropy weighs
    at::Tensor loss;
    int64_t row = 0;
    for (const std::vector<int64_t>& step : layout_.step_labels) {
      const int64_t count = std::ssize(step);
      if (count == 0) break;
      at::Tensor alpha = seen[0].narrow(0, row, count), part = lk_rows(options_.lk, alpha);
      if (options_.reference_quirks && options_.lk.type == LkLoss::Type::kLambda) {
        // One weight for all, and the acceptance divided by the rows it is of while the cross-entropy's divisor is B *
        // S.
        alpha = alpha.mean().view({1});
        const double rest = static_cast<double>(layout_.rows * layout_.width) / static_cast<double>(count);
        part = lk_rows(options_.lk, alpha).mul(rest).expand({count});
      }
      const at::Tensor term = part.sum().mul(weights.const_data_ptr<float>()[row]);
      loss = loss.defined() ? loss.add(term) : term;
      each.push_back(part.detach());
      if (options_.lk.asks_cross_entropy())
        asked.push_back(lk_cross_entropy_weights(options_.lk, alpha).expand({count}));
      row += count;
    }
    Verdicts out{loss, tensor::on_host(at::cat(each)), seen[1], seen[0].detach()};
    if (asked.empty()) return out;
    const at::Tensor share = tensor::on_host(at::cat(asked));
    const ops::LinearSoftCrossEntropy found = against(x, teacher, labels, share.mul(weights), false);
    out.loss = out.loss.add(found.loss);
    out.each = out.each.add(tensor::on_host(found.nll).mul(share));
    return out;
  }

  void trace(Tensors& out, const at::Tensor& hidden, const at::Tensor& logits, size_t k) const {
    std::vector<int64_t> labels;
    for (int64_t n : layout_.step_labels[k]) labels.push_back(layout_.labels[n]);
    std::string step = std::to_string(k);
    out["active"] = index_of(layout_.active);
    out["hidden." + step] = hidden.detach();
    out["logits." + step] = logits.detach();
    out["label_rows." + step] = index_of(labels);
  }

  std::shared_ptr<const Setup> setup_;
  const arch::Eagle3& draft_;
  const Eagle3Vocabulary& vocabulary_;
  const Eagle3Options& options_;
  Tensors p_, in_;
  Layout layout_;
  std::vector<at::Tensor> step_slots_;
  at::Tensor positions_;
  ops::RotaryTable rotary_;
  ops::AttentionOptions visible_;
  std::vector<at::Tensor> keys_, values_;  // [step], [B, nKV, S, hd]
};

// One id a slot, and id 0.
Tensors token_ids(const Tensors&, const Tensors& in) {
  at::Tensor ids = in.at("input_ids").to(at::kLong).reshape({-1});
  return {{"token_ids", at::cat({ids, at::zeros({1}, at::kLong)}, 0)}};
}

Tensors token_rows(const Tensors& p, const Tensors& in) {
  const at::Tensor& table = p.at("embed_tokens.weight");
  return {{"token_rows", at::embedding(table, tensor::beside(in.at("token_ids"), table))}};
}

std::vector<Segment> make(const arch::Eagle3& draft, const Eagle3Vocabulary& vocabulary, const Eagle3Options& options,
                          bool traced) {
  SF_CHECK(options.unroll >= 1 && options.unroll <= 64, Exit::kConfig, "training.unroll is {}, wanted 1 to 64",
           options.unroll);
  SF_CHECK(vocabulary.t2d.numel() == draft.vocab && vocabulary.d2t.numel() == draft.draft_vocab, Exit::kData,
           "the vocabulary map has {} target and {} draft ids, the draft's config {} and {}", vocabulary.t2d.numel(),
           vocabulary.d2t.numel(), draft.vocab, draft.draft_vocab);
  std::vector<Segment> segments;
  for (const arch::Segment& part : arch::describe_training(draft).segments)
    segments.push_back({part.name, part.parameters, part.reads, part.writes, {}});
  segments[0].forward = token_ids;
  segments[1].forward = token_rows;
  segments[1].table = TableCall{TableCall::Kind::kLookUp};
  Segment& steps = segments[2];
  if (traced) steps.writes.push_back("active");
  for (int k = 0; traced && k < options.unroll; ++k)
    for (const char* name : {"hidden.", "logits.", "label_rows."}) steps.writes.push_back(name + std::to_string(k));
  Eagle3Vocabulary own{vocabulary.t2d.to(at::kBool).contiguous(), vocabulary.d2t.to(at::kLong).contiguous()};
  auto setup = std::make_shared<const Setup>(Setup{draft, own, options});
  steps.forward = [setup, traced](const Tensors& parameters, const Tensors& boundaries) {
    return Unroll(setup, parameters, boundaries, traced).run(traced);
  };
  return segments;
}

}  // namespace

arch::Eagle3Batch eagle3_batch(const Tensors& micro_batch, const Eagle3Vocabulary& vocabulary,
                               const Eagle3Options& options) {
  Layout layout = lay_out(micro_batch, vocabulary, options, false);
  arch::Eagle3Batch batch{
      layout.rows, layout.width, std::ssize(layout.keys), std::ssize(layout.active), std::ssize(layout.labels), {}, {}};
  for (const std::vector<int64_t>& rows : layout.step_rows)
    if (!rows.empty()) batch.step_labels.push_back(std::ssize(rows));
  for (size_t k = 0; k < batch.step_labels.size(); ++k) batch.step_active.push_back(std::ssize(layout.step_slots[k]));
  return batch;
}

std::vector<Segment> eagle3_segments(const arch::Eagle3& draft, const Eagle3Vocabulary& vocabulary,
                                     const Eagle3Options& options) {
  return make(draft, vocabulary, options, false);
}

std::vector<Segment> eagle3_traced_segments(const arch::Eagle3& draft, const Eagle3Vocabulary& vocabulary,
                                            const Eagle3Options& options) {
  return make(draft, vocabulary, options, true);
}

}  // namespace sf::model
