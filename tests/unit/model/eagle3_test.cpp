// SPDX-License-Identifier: Apache-2.0
#include "model/eagle3.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "chain.h"
#include "eagle3_reference.h"
#include "tensor/memory.h"
#include "tensor/threads.h"

namespace sf::model {
namespace {

using test::Dual;
using test::RowData;

constexpr int kUnroll = 3;

struct Toy {
  arch::Eagle3 draft;
  test::Eagle3Reference reference;
  Eagle3Vocabulary vocabulary;
  std::vector<RowData> rows;

  explicit Toy(bool fc_norm = false, bool norm_output = true) {
    tensor::set_threads(1);
    draft.vocab = 11, draft.draft_vocab = 6, draft.hidden = 8, draft.target_hidden = fc_norm ? 6 : 8,
    draft.intermediate = 5;
    draft.heads = 4, draft.kv_heads = 2, draft.head_dim = 4, draft.max_positions = 64, draft.rms_eps = 1e-6;
    draft.fc_norm = fc_norm, draft.norm_output = norm_output, draft.rope.theta = 100;
    reference.n = {
        draft.vocab,    draft.draft_vocab, draft.hidden, draft.target_hidden, draft.intermediate, draft.heads,
        draft.kv_heads, draft.head_dim,    kUnroll,      draft.rope.theta,    draft.rms_eps,      fc_norm,
        norm_output};
    reference.used = {0, 2, 3, 5, 8, 9};
    vocabulary.t2d = at::zeros({draft.vocab}, at::kBool);
    vocabulary.d2t = at::zeros({draft.draft_vocab}, at::kLong);
    for (int64_t i = 0; i < draft.draft_vocab; ++i) {
      vocabulary.t2d.mutable_data_ptr<bool>()[reference.used[i]] = true;
      vocabulary.d2t.mutable_data_ptr<int64_t>()[i] = reference.used[i] - i;
    }
    for (const arch::Parameter& parameter : arch::describe_training(draft).parameters)
      if (parameter.name != arch::kTargetHead)
        reference.p[parameter.name] = random(parameter.name, numel(parameter.shape), parameter.shape.size() == 1);
    test::Vec head = random("head", draft.vocab * draft.target_hidden, false);
    for (const Dual& e : head) reference.head.push_back(e.v);
    rows = {row(0, {0, 0, 1, 1, 1, 0, 0, 1, 1, 1}), row(1, {0, 1, 1, 0, 1, 1}), row(2, {0, 0, 0, 0, 1, 1, 1, 0})};
  }

  // Values are exact in fp32, so that both sides start from the same numbers.
  static test::Vec random(const std::string& name, int64_t count, bool near_one) {
    Rng rng(7, name);
    test::Vec values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<double>(near_one ? 1 + 0.25f * rng.normal(i) : 0.5f * rng.normal(i)));
    return values;
  }
  RowData row(uint64_t which, std::vector<int64_t> mask) const {
    Rng rng(which, "row");
    RowData data;
    data.mask = mask;
    for (size_t j = 0; j < mask.size(); ++j) {
      data.ids.push_back(static_cast<int64_t>(rng.below(static_cast<uint64_t>(draft.vocab), j)));
      data.captured.emplace_back();
      data.final_norm.emplace_back();
      for (int64_t d = 0; d < 3 * draft.target_hidden; ++d) data.captured[j].push_back(rng.normal(100 + j, d));
      for (int64_t d = 0; d < draft.target_hidden; ++d) data.final_norm[j].push_back(rng.normal(200 + j, d));
    }
    return data;
  }

  // fp32 leaves of the segment: the teacher's head cut to the draft vocabulary.
  Tensors parameters() const {
    Tensors all;
    for (const arch::Parameter& parameter : arch::describe_training(draft).parameters) {
      at::Tensor value = at::zeros(parameter.shape, at::kFloat);
      for (int64_t i = 0; i < value.numel(); ++i) {
        int64_t width = draft.target_hidden;
        value.mutable_data_ptr<float>()[i] = static_cast<float>(
            parameter.name == arch::kTargetHead ? reference.head[reference.used[i / width] * width + i % width]
                                                : reference.p.at(parameter.name)[i].v);
      }
      all[parameter.name] = value.requires_grad_(parameter.trainable);
    }
    return all;
  }

  // Right-padded to `width` (at least the longest row).
  Tensors batch(const std::vector<RowData>& chosen, int64_t width = 0) const {
    for (const RowData& row : chosen) width = std::max<int64_t>(width, std::ssize(row.ids));
    int64_t count = std::ssize(chosen), h = draft.target_hidden;
    Tensors in{{"input_ids", at::zeros({count, width}, at::kLong)},
               {"loss_mask", at::zeros({count, width}, at::kLong)},
               {"hidden_state", at::zeros({count, width, 3 * h}, at::kFloat)},
               {"final_norm", at::zeros({count, width, h}, at::kFloat)},
               {"lengths", at::zeros({count}, at::kLong)}};
    for (int64_t b = 0; b < count; ++b) {
      in["lengths"].mutable_data_ptr<int64_t>()[b] = std::ssize(chosen[b].ids);
      for (int64_t j = 0; j < std::ssize(chosen[b].ids); ++j) {
        in["input_ids"].mutable_data_ptr<int64_t>()[b * width + j] = chosen[b].ids[j];
        in["loss_mask"].mutable_data_ptr<int64_t>()[b * width + j] = chosen[b].mask[j];
        std::copy(chosen[b].captured[j].begin(), chosen[b].captured[j].end(),
                  in["hidden_state"].mutable_data_ptr<float>() + (b * width + j) * 3 * h);
        std::copy(chosen[b].final_norm[j].begin(), chosen[b].final_norm[j].end(),
                  in["final_norm"].mutable_data_ptr<float>() + (b * width + j) * h);
      }
    }
    std::vector<float> head(reference.head.begin(), reference.head.end());
    at::Tensor logits = at::linear(in["final_norm"], at::from_blob(head.data(), {draft.vocab, h}, at::kFloat));
    in["target_top1"] = at::argmax(logits, -1);
    in["target_lse"] = at::logsumexp(logits, {-1});
    return in;
  }
};

// Sum of the losses and gradients of micro-batches that share one window.
struct Window {
  double loss = 0;
  std::vector<std::array<double, 3>> sums = std::vector<std::array<double, 3>>(kUnroll);
  std::vector<int64_t> trained = std::vector<int64_t>(kUnroll), supervised = trained;
  Tensors parameters;
};

Window train(const Toy& toy, std::vector<Tensors> micro_batches, bool recompute = false) {
  Window window;
  window.parameters = toy.parameters();
  Eagle3Options options{kUnroll, false, recompute};
  for (const Tensors& in : micro_batches) {
    Eagle3Labels labels = eagle3_labels(in, toy.vocabulary, options);
    for (int k = 0; k < kUnroll; ++k) {
      window.trained[k] += labels.trained_count[k];
      window.supervised[k] += labels.supervised_count[k];
    }
  }
  std::vector<double> weights;
  for (int k = 0; k < kUnroll; ++k) weights.push_back(std::pow(0.8, k) / static_cast<double>(window.trained[k]));
  std::vector<Segment> segments = eagle3_segments(toy.draft, toy.vocabulary, options);
  for (Tensors& in : micro_batches) {
    in["step_weights"] = at::tensor(weights, at::kFloat);
    Tensors out = run_chain(segments, window.parameters, in);
    out.at("loss").backward();
    window.loss += out.at("loss").item<double>();
    for (int k = 0; k < kUnroll; ++k)
      for (int c = 0; c < 3; ++c) window.sums[k][c] += out.at("step_sums")[k][c].item<double>();
  }
  return window;
}

Dual window_loss(const test::StepSums& sums) {
  Dual loss = 0;
  for (int k = 0; k < kUnroll; ++k) loss += Dual(std::pow(0.8, k) / sums.trained[k]) * sums.numerator[k];
  return loss;
}

// fp32 sums of some hundred terms of order 1 against fp64: 1e-5 relative to the largest gradient, about 1.
void expect_window(const Toy& toy, const Window& window) {
  test::StepSums wanted = toy.reference.run(toy.rows);
  EXPECT_NEAR(window.loss, window_loss(wanted).v, 1e-5);
  for (int k = 0; k < kUnroll; ++k) {
    EXPECT_EQ(static_cast<double>(window.trained[k]), wanted.trained[k]);
    EXPECT_EQ(static_cast<double>(window.supervised[k]), wanted.supervised[k]);
    EXPECT_NEAR(window.sums[k][0], wanted.numerator[k].v, 1e-4);
    EXPECT_EQ(window.sums[k][1], wanted.correct[k]);
    EXPECT_NEAR(window.sums[k][2], wanted.acceptance[k], 1e-4);
  }
  for (const auto& [name, leaf] : window.parameters) {
    if (!leaf.requires_grad()) continue;
    ASSERT_TRUE(leaf.grad().defined()) << name;
    for (int64_t i = 0; i < leaf.numel(); ++i) {
      test::Eagle3Reference moved = toy.reference;
      moved.p[name][i].d = 1;
      EXPECT_NEAR(leaf.grad().contiguous().const_data_ptr<float>()[i], window_loss(moved.run(toy.rows)).d, 1e-5)
          << name << " " << i;
    }
  }
}

TEST(Eagle3, LossAndEveryGradientOfAWindowEqualTheFp64Form) {
  Toy toy;
  expect_window(toy, train(toy, {toy.batch(toy.rows)}));
}

TEST(Eagle3, FeatureNormsAWideTargetAndAnUnnormedHeadEqualTheFp64Form) {
  Toy toy(true, false);
  expect_window(toy, train(toy, {toy.batch(toy.rows)}));
}

TEST(Eagle3, AWindowSplitIntoMicroBatchesHasTheSameSum) {
  Toy toy;
  expect_window(toy, train(toy, {toy.batch({toy.rows[2]}), toy.batch({toy.rows[0], toy.rows[1]})}));
}

TEST(Eagle3, RecomputedStepsGiveTheSameLossAndGradients) {
  Toy toy(true);
  Window kept = train(toy, {toy.batch(toy.rows)}), again = train(toy, {toy.batch(toy.rows)}, true);
  EXPECT_EQ(kept.loss, again.loss);
  for (const auto& [name, leaf] : kept.parameters) {
    if (!leaf.requires_grad()) continue;
    at::Tensor difference =
        leaf.grad().sub(again.parameters.at(name).grad());  // the steps' gradients add in another order
    EXPECT_LT(difference.abs().max().item<double>(), 1e-6) << name;
  }
}

TEST(Eagle3, RecomputedStepsHoldLessBetweenForwardAndBackward) {
  tensor::install_allocator();
  Toy toy;
  Tensors in = toy.batch(toy.rows), parameters = toy.parameters();
  in["step_weights"] = at::tensor({1.f, 1.f, 1.f});
  auto held = [&](bool recompute) {
    std::vector<Segment> segments = eagle3_segments(toy.draft, toy.vocabulary, {kUnroll, false, recompute});
    uint64_t before = tensor::memory().allocated;
    Tensors out = run_chain(segments, parameters, in);
    return tensor::memory().allocated - before;
  };
  EXPECT_LT(held(true), held(false) / 2);
}

TEST(Eagle3, PaddingAndEmptyRowsChangeNothing) {
  Toy toy;
  Window plain = train(toy, {toy.batch(toy.rows)});
  std::vector<RowData> more = toy.rows;
  more.insert(more.begin() + 1, RowData{});
  Window padded = train(toy, {toy.batch(more, 17)});
  EXPECT_NEAR(plain.loss, padded.loss, 1e-6);  // other GEMM shapes: last bits of fp32
  for (const auto& [name, leaf] : plain.parameters) {
    if (!leaf.requires_grad()) continue;
    at::Tensor difference = leaf.grad().sub(padded.parameters.at(name).grad());
    EXPECT_LT(difference.abs().max().item<double>(), 1e-6) << name;
  }
}

// The rows of the teacher's head and the log-sum-exp stand for the logits over the whole vocabulary (1.4, 1.6).
TEST(Eagle3, TheCompactTeacherEqualsTheFullVocabularyForm) {
  Toy toy;
  Tensors in = toy.batch(toy.rows), parameters = toy.parameters();
  in["step_weights"] = at::tensor({1.f, 1.f, 1.f});
  Tensors out = run_chain(eagle3_traced_segments(toy.draft, toy.vocabulary, {kUnroll, false}), parameters, in);
  std::vector<float> head(toy.reference.head.begin(), toy.reference.head.end());
  at::Tensor state = in["final_norm"].view({-1, toy.draft.target_hidden});
  at::Tensor z = at::linear(state, at::from_blob(head.data(), {toy.draft.vocab, toy.draft.target_hidden}, at::kFloat));
  at::Tensor in_draft = toy.vocabulary.t2d.nonzero().view({-1});
  at::Tensor p = z.index_select(1, in_draft).softmax(1);
  at::Tensor q = z.softmax(1).index_select(1, in_draft);
  for (int k = 0; k < kUnroll; ++k) {
    std::string step = std::to_string(k);
    at::Tensor next = out.at("label_rows." + step).add(1), logits = out.at("logits." + step);
    at::Tensor loss = p.index_select(0, next).mul(logits.log_softmax(1)).sum().neg();
    at::Tensor rate = logits.softmax(1).minimum(q.index_select(0, next)).sum();
    EXPECT_NEAR(out.at("step_sums")[k][0].item<double>(), loss.item<double>(), 1e-4);
    EXPECT_NEAR(out.at("step_sums")[k][2].item<double>(), rate.item<double>(), 1e-5);
  }
}

// Each label's loss is of itself alone, so the micro-batches' sums are those of the rows one by one.
TEST(Eagle3, AnLkLossDoesNotDependOnTheSplit) {
  Toy toy;
  for (LkLoss::Type type : {LkLoss::Type::kAlpha, LkLoss::Type::kLambda, LkLoss::Type::kTv}) {
    Eagle3Options options{.unroll = kUnroll, .lk = {type, 1, 3}};
    auto loss_of = [&](const std::vector<RowData>& rows) {
      Tensors in = toy.batch(rows), parameters = toy.parameters();
      in["step_weights"] = at::tensor({0.1f, 0.08f, 0.064f});
      return run_chain(eagle3_segments(toy.draft, toy.vocabulary, options), parameters, in).at("loss").item<double>();
    };
    double apart = 0;
    for (const RowData& row : toy.rows) apart += loss_of({row});
    EXPECT_NEAR(loss_of(toy.rows), apart, 1e-6);  // other GEMM shapes: last bits of fp32
  }
}

// Rounding to 8 bits of mantissa in every product: a few per cent of the loss and of each gradient's size.
TEST(Eagle3, Bf16StaysNearFp32) {
  Toy toy;
  Tensors in = toy.batch(toy.rows), wide = toy.parameters(), narrow;
  in["step_weights"] = at::tensor({0.1f, 0.08f, 0.064f});
  for (const auto& [name, leaf] : wide)
    narrow[name] = leaf.detach().to(at::kBFloat16).requires_grad_(leaf.requires_grad());
  std::vector<Segment> segments = eagle3_segments(toy.draft, toy.vocabulary, {kUnroll, false});
  at::Tensor loss = run_chain(segments, wide, in).at("loss");
  loss.backward();
  for (const char* name : {"hidden_state", "final_norm"}) in[name] = in[name].to(at::kBFloat16);
  at::Tensor rounded = run_chain(segments, narrow, in).at("loss");
  rounded.backward();
  EXPECT_EQ(rounded.scalar_type(), at::kFloat);
  EXPECT_NEAR(rounded.item<double>(), loss.item<double>(), 0.03 * loss.item<double>());
  for (const auto& [name, leaf] : wide) {
    if (!leaf.requires_grad()) continue;
    at::Tensor difference = narrow.at(name).grad().to(at::kFloat).sub(leaf.grad());
    EXPECT_LT(difference.norm().item<double>(), 0.1 * leaf.grad().norm().item<double>()) << name;
  }
}

TEST(Eagle3, TheMaskShiftsWithItsToken) {
  Toy toy;
  toy.vocabulary.t2d.fill_(true);
  Tensors in = toy.batch({toy.row(5, {0, 0, 1, 1, 0, 1})});
  Eagle3Labels labels = eagle3_labels(in, toy.vocabulary, {kUnroll, false});
  EXPECT_EQ(labels.trained, (std::vector<int64_t>{1, 2, 4}));
  EXPECT_EQ(labels.trained_count, (std::vector<int64_t>{3, 3, 2}));
  Eagle3Labels quirk = eagle3_labels(in, toy.vocabulary, {kUnroll, true});
  EXPECT_EQ(quirk.trained, (std::vector<int64_t>{2, 3, 5}));
  EXPECT_EQ(quirk.trained_count, (std::vector<int64_t>{3, 3, 3}));
}

TEST(Eagle3, LabelsWhoseTeacherIsOutsideTheDraftVocabularyAreSupervisedButNotTrained) {
  Toy toy;
  Tensors in = toy.batch({toy.row(5, {1, 1, 1})});
  in["target_top1"] = at::tensor(std::vector<int64_t>{0, 1, 2}, at::kLong).view({1, 3});
  Eagle3Labels labels = eagle3_labels(in, toy.vocabulary, {2, false});
  EXPECT_EQ(labels.trained, (std::vector<int64_t>{1}));
  EXPECT_EQ(labels.supervised_count, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(labels.trained_count, (std::vector<int64_t>{1, 1}));
}

TEST(Eagle3, ATop1IdOutsideTheVocabularyIsRefused) {
  Toy toy;
  Tensors in = toy.batch({toy.row(5, {1, 1, 1})});
  in["target_top1"].fill_(11);
  EXPECT_THROW(eagle3_labels(in, toy.vocabulary, {2, false}), Error);
}

TEST(Eagle3, AMapOfAnotherSizeIsRefused) {
  Toy toy;
  toy.draft.draft_vocab = 5;
  EXPECT_THROW(eagle3_segments(toy.draft, toy.vocabulary, {kUnroll, false}), Error);
}

}  // namespace
}  // namespace sf::model
