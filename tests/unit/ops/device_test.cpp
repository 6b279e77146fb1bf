// SPDX-License-Identifier: Apache-2.0
// Operators off the CPU: values and gradients of the plain forms, on a device of their own, against our kernels.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>

#include "fake_device.h"
#include "ops/attention.h"
#include "ops/kernels.h"
#include "ops/linear.h"
#include "ops/linear_cross_entropy.h"
#include "ops/linear_distance.h"
#include "ops/linear_soft_cross_entropy.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "ops/vocabulary_head.h"
#include "support.h"

namespace sf::ops {
namespace {

using List = std::vector<at::Tensor>;
using Operator = std::function<List(const List&)>;

TEST(FakeDevice, ComputesAndDifferentiatesApartFromTheHost) {
  at::Tensor x = at::randn({5, 7}), w = at::randn({7, 3});
  at::Tensor dx = x.to(fake_device()).set_requires_grad(true), dw = w.to(fake_device());
  at::Tensor y = at::matmul(dx, dw).tanh().transpose(0, 1).reshape({-1});
  EXPECT_EQ(tensor::max_abs_difference(y.to(at::kCPU), at::matmul(x, w).tanh().t().reshape({-1})), 0);
  List g = torch::autograd::grad({y.sum()}, {dx});
  EXPECT_EQ(g[0].device(), fake_device());
  EXPECT_ANY_THROW(at::matmul(dx, w));
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(std::printf("%f", static_cast<double>(dw.const_data_ptr<float>()[0])), "");
}

// The largest difference, of what is told apart by more than rounding: relative to the largest magnitude.
double difference(const at::Tensor& here, const at::Tensor& there) {
  at::Tensor a = here.detach().to(at::kDouble), b = there.detach().to(at::kCPU).to(at::kDouble);
  double most = a.numel() == 0 ? 0 : a.abs().max().item<double>();
  return tensor::max_abs_difference(a, b) / std::max(most, 1e-3);
}

// Outputs of `op` on the host and on the device, and the gradients of all leaves for random seeds.
void expect_alike(const Operator& op, const List& leaves, double bound) {
  List here, there;
  for (const at::Tensor& leaf : leaves) {
    here.push_back(leaf.detach().clone().set_requires_grad(true));
    there.push_back(leaf.detach().to(fake_device()).set_requires_grad(true));
  }
  List wanted = op(here), found = op(there), seeds, device_seeds, roots, device_roots;
  ASSERT_EQ(wanted.size(), found.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(found[i].device(), fake_device()) << "output " << i;
    EXPECT_EQ(found[i].scalar_type(), wanted[i].scalar_type()) << "output " << i;
    ASSERT_EQ(found[i].sizes(), wanted[i].sizes()) << "output " << i;
    EXPECT_LE(difference(wanted[i], found[i]), bound) << "output " << i;
    ASSERT_EQ(found[i].requires_grad(), wanted[i].requires_grad()) << "output " << i;
    if (!wanted[i].requires_grad()) continue;
    seeds.push_back(at::randn(wanted[i].sizes()).to(wanted[i].scalar_type()));
    device_seeds.push_back(seeds.back().to(fake_device()));
    roots.push_back(wanted[i]);
    device_roots.push_back(found[i]);
  }
  List expected = torch::autograd::grad(roots, here, seeds),
       got = torch::autograd::grad(device_roots, there, device_seeds);
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), expected[i].scalar_type()) << "gradient " << i;
    EXPECT_LE(difference(expected[i], got[i]), bound) << "gradient " << i;
  }
}

// fp32: sums of at most some hundred terms in another order. bf16: a value that rounds the other way (2^-8 of it), and
// what is summed over such values.
struct Form {
  at::ScalarType type;
  double bound;
};
const Form kForms[] = {{at::kFloat, 2e-5}, {at::kBFloat16, 0.03}};

at::Tensor some(at::IntArrayRef shape, at::ScalarType type) {
  return at::randn(shape).to(type);
}

TEST(OnADevice, LinearLayersNormsAndSwigluAreTheKernels) {
  for (auto [type, bound] : kForms) {
    expect_alike([](const List& in) { return List{linear(in[0], in[1], in[2])}; },
                 {some({3, 5, 33}, type), some({17, 33}, type), some({17}, type)}, bound);
    expect_alike([](const List& in) { return List{linear(in[0], in[1])}; }, {some({7, 64}, type), some({40, 64}, type)},
                 bound);
    expect_alike([](const List& in) { return List{rms_norm(in[0], in[1], 1e-6)}; },
                 {some({2, 9, 48}, type), some({48}, type)}, bound);
    expect_alike([](const List& in) { return List{swiglu(in[0], in[1])}; }, {some({6, 31}, type), some({6, 31}, type)},
                 bound);
  }
}

TEST(OnADevice, RotationTurnsWhatItTurnsOnTheHost) {
  std::vector<double> frequency{1, 0.5, 0.25, 0.1};
  RotaryTable table = make_rotary(frequency, 1, 64);
  at::Tensor each = at::arange(9, at::kLong).mul(5), by_row = at::randint(0, 64, {2, 9}, at::kLong);
  for (auto [type, bound] : kForms) {
    for (const at::Tensor& positions : {each, by_row}) {
      for (int64_t dims : {8, 12}) {
        expect_alike([&](const List& in) { return List{apply_rotary(in[0], table, positions)}; },
                     {some({2, 3, 9, dims}, type)}, bound);
      }
    }
    expect_alike([&](const List& in) { return List{apply_rotary(in[0].transpose(0, 1), table, each)}; },
                 {some({9, 3, 8}, type)}, bound);
  }
}

TEST(OnADevice, AttentionSeesWhatTheKernelsSee) {
  for (auto [type, bound] : kForms) {
    for (int64_t kv_heads : {1, 2, 4}) {
      List leaves{some({2, 4, 11, 24}, type), some({2, kv_heads, 11, 24}, type), some({2, kv_heads, 11, 24}, type)};
      // Right padding, left padding, a row of padding alone (zeros, and no NaN), a window.
      AttentionOptions right{.key_end = at::tensor({11, 6}, at::kLong)},
          left{.key_begin = at::tensor({0, 4}, at::kLong)};
      AttentionOptions none{.key_end = at::tensor({0, 11}, at::kLong)}, window{.scale = 0.3, .window = 4};
      for (const AttentionOptions& options : {AttentionOptions{}, right, left, none, window})
        expect_alike([&](const List& in) { return List{attention(in[0], in[1], in[2], options)}; }, leaves, bound);
    }
  }
}

TEST(OnADevice, DiagonalsOfEagle3AreSeenOnce) {
  for (auto [type, bound] : kForms) {
    List leaves{some({2, 4, 7, 16}, type)};
    for (int i = 0; i < 6; ++i) leaves.push_back(some({2, 2, 7, 16}, type));
    AttentionOptions options{.key_end = at::tensor({7, 3}, at::kLong)};
    expect_alike(
        [&](const List& in) {
          return List{
              attention_with_diagonals(in[0], std::span(in).subspan(1, 3), std::span(in).subspan(4, 3), options)};
        },
        leaves, bound);
  }
}

TEST(OnADevice, BlocksOfDflashAreSeenWithAndWithoutAWindow) {
  std::vector<int64_t> anchors{0, 3, 9};
  for (auto [type, bound] : kForms) {
    List leaves{some({4, 12, 16}, type), some({2, 9, 16}, type), some({2, 9, 16}, type), some({2, 12, 16}, type),
                some({2, 12, 16}, type)};
    for (int64_t window : {0, 1, 3, 64}) {
      expect_alike(
          [&](const List& in) { return List{attention_of_blocks(in[0], in[1], in[2], in[3], in[4], anchors, window)}; },
          leaves, bound);
    }
  }
}

TEST(PlainKernels, AreTakenOnTheHostWhereTheyAreAskedFor) {
  at::Tensor x = some({9, 33}, at::kFloat), w = some({33}, at::kFloat);
  const at::Tensor own = rms_norm(x, w, 1e-6), there = rms_norm(x.to(fake_device()), w.to(fake_device()), 1e-6);
  use_plain(true);
  const at::Tensor asked = rms_norm(x, w, 1e-6);
  use_plain(false);
  EXPECT_TRUE(tensor::bit_equal(asked, there.to(at::kCPU)));
  EXPECT_LT(difference(own, asked), 1e-5);
  EXPECT_TRUE(tensor::bit_equal(rms_norm(x, w, 1e-6), own));
}

TEST(OnADevice, LinearSoftCrossEntropyIsTheKernels) {
  at::Tensor lse = at::rand({6}).add(4), weight = at::rand({13}).mul(at::rand({13}).gt(0.3));
  at::Tensor row_of = at::randint(0, 6, {13}, at::kLong);
  for (auto [type, bound] : kForms) {
    at::Tensor states = some({6, 10}, type), head = some({50, 10}, type);
    for (bool metrics : {true, false}) {
      expect_alike(
          [&](const List& in) {
            const SoftTeacher teacher{states.to(in[0].device()), head.to(in[0].device()), metrics ? lse : at::Tensor(),
                                      row_of};
            LinearSoftCrossEntropy out = linear_soft_cross_entropy(in[0], in[1], teacher, weight);
            return metrics ? List{out.loss, out.nll, out.argmax, out.acceptance} : List{out.loss};
          },
          {some({13, 24}, type), some({50, 24}, type)}, bound);
    }
  }
}

TEST(OnADevice, LinearCrossEntropyIsTheKernels) {
  at::Tensor labels = at::randint(0, 70, {19}, at::kLong), weight = at::rand({19}).mul(at::rand({19}).gt(0.2));
  for (auto [type, bound] : kForms) {
    expect_alike(
        [&](const List& in) {
          LinearCrossEntropy out = linear_cross_entropy(in[0], in[1], labels, weight);
          return List{out.loss, out.nll, out.argmax};
        },
        {some({19, 24}, type), some({70, 24}, type)}, bound);
  }
}

TEST(OnADevice, LinearDistanceIsTheKernels) {
  const at::Tensor labels = at::randint(0, 70, {19}, at::kLong), nll = at::rand({19}), l1 = at::rand({19});
  for (auto [type, bound] : kForms) {
    const at::Tensor states = some({19, 24}, type).mul(64);  // sure of itself: no p near its q, where the slope jumps
    for (bool teacher : {true, false}) {
      expect_alike(
          [&](const List& in) {
            DistanceJudge judge{labels, nll, l1, {}};
            if (teacher) judge.states = states.to(in[0].device());
            return List{linear_distance({{in[0], in[1]}, {in[2], in[3]}}, judge).loss};
          },
          {some({19, 24}, type), some({70, 24}, type), some({19, 8}, type), some({70, 8}, type)}, bound);
    }
  }
}

TEST(OnADevice, AVocabularyHeadSeesItsTableInChunks) {
  at::Tensor labels = at::randint(0, 70, {19}, at::kLong);
  for (auto [type, bound] : kForms) {
    at::Tensor table = some({70, 24}, type);
    for (int64_t chunk : {16, 70, 1000}) {
      expect_alike(
          [&](const List& in) {
            HeadLoss out = vocabulary_head(in[0], table.to(in[0].device()), labels, chunk);
            return List{out.nll, out.top1};
          },
          {some({19, 24}, type)}, bound);
    }
  }
}

}  // namespace
}  // namespace sf::ops
