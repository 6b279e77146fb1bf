// SPDX-License-Identifier: Apache-2.0
// Speed of the CPU kernels on this machine, one thread, processor time: best of several runs.
#include <fmt/core.h>

#include <ctime>
#include <functional>
#include <vector>

#include "sf_kernels/gemm.h"
#include "sf_kernels/isa.h"
#include "sf_kernels/optimizer.h"

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
  }
}
