// SPDX-License-Identifier: Apache-2.0
// Speed of the CPU kernels on this machine, one thread, processor time: best of several runs.
#include <fmt/core.h>

#include <ctime>
#include <functional>
#include <vector>

#include "sf_kernels/attention.h"
#include "sf_kernels/gemm.h"
#include "sf_kernels/isa.h"
#include "sf_kernels/loss.h"
#include "sf_kernels/optimizer.h"
#include "sf_kernels/rows.h"

namespace {

using namespace sf::kernels;

double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds(const std::function<void()>& work) {
  double best = 1e9;
  work();
  for (int i = 0; i < 7; ++i) {
    const double start = thread_seconds();
    work();
    best = std::min(best, thread_seconds() - start);
  }
  return best;
}

void products(size_t m, size_t n, size_t k) {
  std::vector<float> x(m * k, 0.5f), w(n * k, 0.25f), y(m * n), packed(packed_f32_size(n, k));
  std::vector<uint16_t> x16(m * k, 0x3f00), w16(n * k, 0x3e80), packed16(packed_bf16_size(n, k));
  pack_f32({w.data(), k, 1}, n, k, packed.data());
  pack_bf16({w16.data(), k, 1}, n, k, packed16.data());
  const double f32 = seconds([&] { gemm_f32({x.data(), k, 1}, m, packed.data(), n, k, nullptr, {y.data(), n, 1}); });
  const double bf16 = seconds([&] {
    gemm_bf16({x16.data(), k, 1}, m, packed16.data(), n, k, nullptr, {y.data(), n, 1});
  });
  std::vector<RowSummary> rows(m);
  const double top = seconds([&] { gemm_f32_summary({x.data(), k, 1}, m, packed.data(), n, k, rows.data()); });
  const double flops = 2e-9 * static_cast<double>(m * n * k), bytes = 1e-9 * static_cast<double>(n * k);
  fmt::print(
      "{:>5} x {:>5} x {:>5}   fp32 {:6.1f} GFLOP/s {:5.1f} GB/s   bf16 {:6.1f} GFLOP/s {:5.1f} GB/s   summary "
      "{:6.1f}\n",
      m, n, k, flops / f32, 4 * bytes / f32, flops / bf16, 2 * bytes / bf16, flops / top);
}

void spans(size_t n) {
  std::vector<float> p(n, 1), g(n, 1e-3f), m(n, 0), v(n, 0);
  const AdamWConstants c = adamw_constants(1e-3, 0.9, 0.999, 1e-8, 0.01, 10, 1);
  int64_t limbs[kSquareLimbs] = {};
  const double size = 1e-9 * static_cast<double>(n) * 4;
  fmt::print("adamw {:.1f} GB/s   ", size * 7 / seconds([&] { adamw(p.data(), g.data(), m.data(), v.data(), n, c); }));
  fmt::print("fold {:.1f} GB/s   ", size * 3 / seconds([&] { fold_add(p.data(), g.data(), n); }));
  fmt::print("squares {:.1f} GB/s   ", size / seconds([&] { add_squares(g.data(), n, limbs); }));
  fmt::print("finite {:.1f} GB/s\n", size / seconds([&] { first_non_finite(g.data(), n); }));
}

// Causal, `rows` queries behind `past` cached keys; 9 query heads on 3 key heads of 64.
void attentions(size_t rows, size_t past) {
  const size_t keys = rows + past, dims = 64;
  std::vector<float> q(9 * rows * dims, 0.1f), k(3 * keys * dims, 0.1f), v(k), out(q), g(q), lse(9 * rows), dq(q),
      dk(k), dv(k);
  std::vector<uint16_t> k16(k.size(), 0x3dcc), v16(k16);
  std::vector<int64_t> low(rows, 0), high;
  for (size_t i = 0; i < rows; ++i) high.push_back(static_cast<int64_t>(past + i + 1));
  Attention op;
  op.heads = 9, op.kv_heads = 3, op.rows = rows, op.dims = dims, op.scale = 0.125f, op.low = low.data(),
  op.high = high.data();
  op.q = {q.data(), 0, rows * dims, dims}, op.k = {k.data(), 0, keys * dims, dims},
  op.v = {v.data(), 0, keys * dims, dims};
  const Heads<float> to{out.data(), 0, rows * dims, dims};
  double pairs = 0;
  for (int64_t h : high) pairs += static_cast<double>(h);
  const double gflop = 1e-9 * pairs * 9 * 4 * dims;
  const double forward = seconds([&] { attention(op, to, lse.data()); });
  fmt::print("attention {} rows behind {}: fp32 {:.3f} ms, {:.0f} GFLOP/s", rows, past, 1e3 * forward, gflop / forward);
  if (past == 0) {
    AttentionGradient gradient;
    gradient.out = {out.data(), 0, rows * dims, dims}, gradient.g = {g.data(), 0, rows * dims, dims};
    gradient.lse = lse.data(), gradient.keys = keys, gradient.dq = dq.data(), gradient.dk = dk.data(),
    gradient.dv = dv.data();
    const double backward = seconds([&] { attention_backward(op, gradient); });
    fmt::print(", backward {:.3f} ms, {:.0f} GFLOP/s", 1e3 * backward, 2.5 * gflop / backward);
  }
  op.kv_type = Type::kBF16;
  op.k.data = k16.data(), op.v.data = v16.data();
  fmt::print(", bf16 cache {:.3f} ms\n", 1e3 * seconds([&] { attention(op, to, lse.data()); }));
}

void rows() {
  const size_t n = 256, width = 576, vocab = 8192;
  std::vector<float> x(n * width, 0.3f), w(width, 1), y(x), dx(x), dw(w), rstd(n), lse(n, 10), ones(n, 1);
  RmsNorm norm;
  norm.rows = n, norm.width = norm.x_row = width, norm.eps = 1e-5f, norm.x = x.data(), norm.weight = w.data();
  fmt::print("rms_norm 256 x 576 {:.3f} ms", 1e3 * seconds([&] { rms_norm(norm, y.data(), rstd.data()); }));
  fmt::print(", backward {:.3f} ms\n",
             1e3 * seconds([&] { rms_norm_backward(norm, y.data(), rstd.data(), dx.data(), dw.data()); }));
  std::vector<float> gate(n * 1536, 0.2f), up(gate), out(gate), dgate(gate), dup(gate);
  fmt::print("swiglu 256 x 1536 {:.3f} ms",
             1e3 * seconds([&] { swiglu(Type::kF32, gate.data(), up.data(), out.data(), out.size()); }));
  fmt::print(", backward {:.3f} ms\n", 1e3 * seconds([&] {
                                         swiglu_backward(Type::kF32, gate.data(), up.data(), out.data(), dgate.data(),
                                                         dup.data(), out.size());
                                       }));
  std::vector<float> z(n * vocab, 0.1f), t(z);
  std::vector<int64_t> teacher(n, 0);
  std::vector<SoftRow> state(n);
  SoftLoss loss;
  loss.rows = n, loss.width = vocab, loss.z = z.data(), loss.t = t.data(), loss.weight = ones.data();
  loss.target_lse = lse.data(), loss.teacher = teacher.data();
  fmt::print("soft_loss 256 x 8192 {:.3f} ms", 1e3 * seconds([&] { soft_loss(loss, state.data()); }));
  loss.gradient = true;
  fmt::print(", with its gradient {:.3f} ms\n", 1e3 * seconds([&] { soft_loss(loss, state.data()); }));
}

}  // namespace

int main() {
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    use_isa(isa);
    fmt::print("{}\n", name_of(sf::kernels::isa()));
    for (size_t m : {1, 2, 4, 8, 12, 16, 32, 64, 256}) products(m, 1536, 576);
    products(256, 576, 1536);
    products(512, 4096, 1024);
    for (size_t m : {1, 8, 32, 256}) products(m, 49152, 576);
    spans(size_t{1} << 22);
    rows();
    attentions(512, 0);
    attentions(1, 511);
    attentions(8, 511);
    attentions(256, 256);
  }
}
