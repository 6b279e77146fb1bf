// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/gemm.h"

#include <cmath>
#include <cstddef>
#include <memory>
#include <new>

#include "table.h"

namespace sf::kernels {

namespace {

constexpr size_t kCacheBytes = 768 << 10;  // of packed x: what stays in the second cache beside a tile's weights

// Uninitialised, aligned to a cache line.
template <typename T>
struct Buffer {
  explicit Buffer(size_t count) : data(static_cast<T*>(::operator new (count * sizeof(T) + 1, std::align_val_t{64}))) {}
  ~Buffer() { ::operator delete (data, std::align_val_t{64}); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  T* data;
};

size_t panels_of(size_t n) {
  return (n + kPanel - 1) / kPanel;
}

// This thread's, for packed rows: kept, since one that comes and goes with every product is cut up in between by what
// lives longer, and the heap grows by it.
template <typename T>
T* kept_buffer(size_t count) {
  thread_local std::unique_ptr<Buffer<std::byte>> kept;
  thread_local size_t bytes = 0;
  const size_t wanted = count * sizeof(T);
  if (bytes < wanted) {
    kept.reset();
    bytes = 0;
    kept = std::make_unique<Buffer<std::byte>>(wanted);
    bytes = wanted;
  }
  return reinterpret_cast<T*>(kept->data);
}

// Calls work(job, first_row) for blocks of rows whose packed form stays in cache.
template <typename Step, typename PackRows, typename Work>
void by_rows(size_t m, size_t steps, const PackRows& pack_rows, const Work& work) {
  const size_t most = table().tile_rows, fit = kCacheBytes / (steps * sizeof(Step) + 1) / most * most;
  const size_t block = fit < most ? most : fit;
  Step* const buffer = kept_buffer<Step>((m < block ? m : block) * steps);
  for (size_t row = 0; row < m; row += block) {
    GemmJob job;
    const size_t rows = m - row < block ? m - row : block;
    job.tiles = {rows, (rows + most - 1) / most};
    job.x = buffer;
    job.steps = steps;
    pack_rows(row, job.tiles, buffer);
    work(job, row);
  }
}

template <typename T>
Matrix<T> from_row(Matrix<T> x, size_t row) {
  return {x.data + row * x.row, x.row, x.column};
}

// Combines the blocks of each row in their order, in fp64.
void combine(const BlockSummary* parts, size_t rows, size_t blocks, RowSummary* out) {
  for (size_t r = 0; r < rows; ++r) {
    const BlockSummary* part = parts + r * blocks;
    float top = part[0].top, second = part[0].second;
    int32_t at = part[0].at;
    for (size_t b = 1; b < blocks; ++b) {
      if (part[b].top > top) {
        second = std::fmax(top, part[b].second);
        top = part[b].top;
        at = part[b].at;
      } else {
        second = std::fmax(second, part[b].top);
      }
    }
    double total = 0;
    for (size_t b = 0; b < blocks; ++b) total += part[b].total * std::exp(static_cast<double>(part[b].top - top));
    out[r] = {at, top - second, static_cast<float>(top + std::log(total))};
  }
}

template <typename Step, typename PackRows>
void summary(size_t m, const void* packed, size_t n, size_t steps, const PackRows& pack_rows,
             void (*kernel)(const GemmJob&, size_t, size_t, size_t, BlockSummary*), RowSummary* out,
             const Parallel& parallel) {
  const size_t blocks = (n + kSummaryColumns - 1) / kSummaryColumns;
  Buffer<BlockSummary> parts(m * blocks);
  by_rows<Step>(m, steps, pack_rows, [&](GemmJob& job, size_t row) {
    job.packed = packed;
    job.n = n;
    run(parallel, blocks,
        [&](size_t begin, size_t end) { kernel(job, begin, end, blocks, parts.data + row * blocks); });
  });
  combine(parts.data, m, blocks, out);
}

// Units of panels that no tile straddles, so that pieces of the range work at full width.
constexpr size_t kUnit = 4;

template <typename Step, typename PackRows, typename Y>
void product(size_t m, const void* packed, size_t n, size_t steps, const PackRows& pack_rows,
             void (*kernel)(const GemmJob&, size_t, size_t), const float* bias, Matrix<Y> y, bool add,
             const Parallel& parallel) {
  const size_t panels = panels_of(n);
  by_rows<Step>(m, steps, pack_rows, [&](GemmJob& job, size_t row) {
    job.packed = packed;
    job.n = n;
    job.bias = bias;
    job.add = add;
    job.narrow = sizeof(Y) == sizeof(uint16_t);
    job.y = y.data + row * y.row;
    job.y_row = y.row;
    run(parallel, (panels + kUnit - 1) / kUnit,
        [&](size_t begin, size_t end) { kernel(job, begin * kUnit, end * kUnit < panels ? end * kUnit : panels); });
  });
}

}  // namespace

size_t packed_f32_size(size_t n, size_t k) {
  return panels_of(n) * kPanel * k;
}
size_t packed_bf16_size(size_t n, size_t k) {
  return panels_of(n) * kPanel * ((k + 1) / 2 * 2);
}

void pack_f32(Matrix<const float> w, size_t n, size_t k, float* packed, const Parallel& parallel) {
  run(parallel, panels_of(n), [&](size_t begin, size_t end) { table().pack_panels_f32(w, n, k, begin, end, packed); });
}

void pack_bf16(Matrix<const uint16_t> w, size_t n, size_t k, uint16_t* packed, const Parallel& parallel) {
  run(parallel, panels_of(n), [&](size_t begin, size_t end) { table().pack_panels_bf16(w, n, k, begin, end, packed); });
}

namespace {

void f32(Matrix<const float> x, size_t m, const float* packed, size_t n, size_t k, const float* bias, Matrix<float> y,
         bool add, const Parallel& parallel) {
  auto rows = [&](size_t row, RowTiles tiles, float* to) { table().pack_rows_f32(from_row(x, row), k, tiles, to); };
  product<float>(m, packed, n, k, rows, table().gemm_f32, bias, y, add, parallel);
}

template <typename Y>
void bf16(Matrix<const uint16_t> x, size_t m, const uint16_t* packed, size_t n, size_t k, const float* bias,
          Matrix<Y> y, bool add, const Parallel& parallel) {
  auto rows = [&](size_t row, RowTiles tiles, uint32_t* to) { table().pack_rows_bf16(from_row(x, row), k, tiles, to); };
  product<uint32_t>(m, packed, n, (k + 1) / 2, rows, table().gemm_bf16, bias, y, add, parallel);
}

}  // namespace

void gemm_f32(Matrix<const float> x, size_t m, const float* packed, size_t n, size_t k, const float* bias,
              Matrix<float> y, const Parallel& parallel) {
  f32(x, m, packed, n, k, bias, y, false, parallel);
}

void gemm_bf16(Matrix<const uint16_t> x, size_t m, const uint16_t* packed, size_t n, size_t k, const float* bias,
               Matrix<float> y, const Parallel& parallel) {
  bf16(x, m, packed, n, k, bias, y, false, parallel);
}

void gemm_bf16_narrow(Matrix<const uint16_t> x, size_t m, const uint16_t* packed, size_t n, size_t k, const float* bias,
                      Matrix<uint16_t> y, const Parallel& parallel) {
  bf16(x, m, packed, n, k, bias, y, false, parallel);
}

void gemm_f32_add(Matrix<const float> x, size_t m, const float* packed, size_t n, size_t k, Matrix<float> y,
                  const Parallel& parallel) {
  f32(x, m, packed, n, k, nullptr, y, true, parallel);
}

void gemm_bf16_add(Matrix<const uint16_t> x, size_t m, const uint16_t* packed, size_t n, size_t k, Matrix<float> y,
                   const Parallel& parallel) {
  bf16(x, m, packed, n, k, nullptr, y, true, parallel);
}

void gemm_f32_summary(Matrix<const float> x, size_t m, const float* packed, size_t n, size_t k, RowSummary* out,
                      const Parallel& parallel) {
  auto rows = [&](size_t row, RowTiles tiles, float* to) { table().pack_rows_f32(from_row(x, row), k, tiles, to); };
  summary<float>(m, packed, n, k, rows, table().summary_f32, out, parallel);
}

void gemm_bf16_summary(Matrix<const uint16_t> x, size_t m, const uint16_t* packed, size_t n, size_t k, RowSummary* out,
                       const Parallel& parallel) {
  auto rows = [&](size_t row, RowTiles tiles, uint32_t* to) { table().pack_rows_bf16(from_row(x, row), k, tiles, to); };
  summary<uint32_t>(m, packed, n, (k + 1) / 2, rows, table().summary_bf16, out, parallel);
}

}  // namespace sf::kernels
