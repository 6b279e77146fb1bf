// SPDX-License-Identifier: Apache-2.0
// Register tiles of R rows by P panels; every element is one chain of fma over k, whatever the tile.
#include "functions.h"
#include "lanes.h"
#include "spans.h"

namespace sf::kernels::SF_ISA {

namespace {

#if defined(__AVX512F__)
constexpr size_t kMostPanels = 4;
constexpr size_t panels_for(size_t rows) {
  return rows <= 6 ? 4 : 2;
}  // accumulators + panels + 1 <= 32 registers
#else
constexpr size_t kMostPanels = 4;
constexpr size_t panels_for(size_t rows) {
  return rows <= 1 ? 4 : rows <= 2 ? 2 : 1;
}
#endif

struct F32 {
  using Row = float;  // one step of one packed row of x
  using Weight = float;
  static constexpr size_t kWeights = kPanel;  // of one step of a panel
  SF_INLINE Lanes weight(const float* w) { return load(w); }
  SF_INLINE Lanes row(const float* x) { return splat(*x); }
  SF_INLINE Lanes step(Lanes x, Lanes w, Lanes acc) { return fma(x, w, acc); }
};

#if defined(__AVX512BF16__)
struct Bf16 {
  using Row = uint32_t;
  using Weight = uint16_t;
  static constexpr size_t kWeights = 2 * kPanel;
  SF_INLINE __m512i weight(const uint16_t* w) { return _mm512_loadu_si512(w); }
  SF_INLINE __m512i row(const uint32_t* x) { return _mm512_set1_epi32(static_cast<int>(*x)); }
  SF_INLINE Lanes step(__m512i x, __m512i w, Lanes acc) {
    return {_mm512_dpbf16_ps(acc.v, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w))};
  }
};
#else
struct Pair {
  Lanes low, high;
};
struct Bf16 {
  using Row = uint32_t;
  using Weight = uint16_t;
  static constexpr size_t kWeights = 2 * kPanel;
#if defined(__AVX2__)
  SF_INLINE Pair split(__m256i a, __m256i b) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    return {{_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))},
            {_mm256_castsi256_ps(_mm256_and_si256(a, mask)), _mm256_castsi256_ps(_mm256_and_si256(b, mask))}};
  }
  SF_INLINE Pair weight(const uint16_t* w) {
    return split(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)),
                 _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 16)));
  }
  SF_INLINE Pair row(const uint32_t* x) {
    const __m256i both = _mm256_set1_epi32(static_cast<int>(*x));
    return split(both, both);
  }
#else
  SF_INLINE Pair weight(const uint16_t* w) {
    return {each([&](size_t i) { return float_of(static_cast<uint32_t>(w[2 * i]) << 16); }),
            each([&](size_t i) { return float_of(static_cast<uint32_t>(w[2 * i + 1]) << 16); })};
  }
  SF_INLINE Pair row(const uint32_t* x) {
    return {splat(float_of(*x << 16)), splat(float_of(*x & 0xffff0000))};
  }
#endif
  SF_INLINE Lanes step(Pair x, Pair w, Lanes acc) {
    return fma(x.low, w.low, fma(x.high, w.high, acc));
  }
};
#endif

// acc[r][p] goes on over all steps. `stride`: weights between two panels.
template <typename F, size_t R, size_t P>
__attribute__((always_inline)) inline void accumulate(const typename F::Row* x, const typename F::Weight* w,
                                                      size_t stride, size_t steps, Lanes (&acc)[R][P]) {
  for (size_t t = 0; t < steps; ++t) {
    decltype(F::weight(w)) column[P];
#pragma GCC unroll 4
    for (size_t p = 0; p < P; ++p) {
      column[p] = F::weight(w + p * stride);
      // Weights come from memory once: far enough ahead to hide it, near enough to stay in the first cache.
      if constexpr (R <= 8) __builtin_prefetch(w + p * stride + 32 * F::kWeights, 0, 3);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < R; ++r) {
      const auto row = F::row(x + r);
#pragma GCC unroll 4
      for (size_t p = 0; p < P; ++p) acc[r][p] = F::step(row, column[p], acc[r][p]);
    }
    x += R;
    w += F::kWeights;
  }
}

// Where a finished tile goes: rows [first_row, ...) of y, columns from `column` on.
struct Store {
  float* y;
  size_t y_row, n;
  const float* bias;
  bool add;
  uint16_t* narrow = nullptr;  // instead of y, rounded
  template <size_t R, size_t P>
  SF_INLINE void begin(const Store& to, size_t first_row, size_t column, Lanes (&acc)[R][P]) {
#pragma GCC unroll 16
    for (size_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (size_t p = 0; p < P; ++p) {
        const size_t at = column + p * kPanel, width = at + kPanel <= to.n ? kPanel : to.n - at;
        acc[r][p] = !to.add ? splat(0.0f) : load(to.y + (first_row + r) * to.y_row + at, width);
      }
    }
  }
  template <size_t R, size_t P>
  SF_INLINE void put(const Store& to, size_t first_row, size_t column, const Lanes (&acc)[R][P]) {
#pragma GCC unroll 4
    for (size_t p = 0; p < P; ++p) {
      const size_t at = column + p * kPanel, width = at + kPanel <= to.n ? kPanel : to.n - at;
      const Lanes bias = !to.bias ? splat(0.0f) : load(to.bias + at, width);
#pragma GCC unroll 16
      for (size_t r = 0; r < R; ++r) {
        const Lanes value = to.bias ? acc[r][p] + bias : acc[r][p];
        const size_t place = (first_row + r) * to.y_row + at;
        if (to.narrow)
          give(to.narrow + place, value, width);
        else
          give(to.y + place, value, width);
      }
    }
  }
};

using Tile = void (*)(const void* x, const void* w, size_t stride, size_t steps, const Store& to, size_t first_row,
                      size_t column);

template <typename F, size_t R, size_t P>
void tile(const void* x, const void* w, size_t stride, size_t steps, const Store& to, size_t first_row, size_t column) {
  Lanes acc[R][P];
  Store::begin(to, first_row, column, acc);
  accumulate<F, R, P>(static_cast<const typename F::Row*>(x), static_cast<const typename F::Weight*>(w), stride, steps,
                      acc);
  Store::put(to, first_row, column, acc);
}

template <typename F, size_t R>
constexpr Tile tile_of(size_t panels) {
  constexpr size_t most = panels_for(R);
  if constexpr (most >= 4) {
    if (panels == 4) return tile<F, R, 4>;
    if (panels == 3) return tile<F, R, 3>;
  }
  if constexpr (most >= 2) {
    if (panels == 2) return tile<F, R, 2>;
  }
  return tile<F, R, 1>;
}

template <typename F, size_t R = kTileRows>
Tile tile_for(size_t rows, size_t panels) {
  if constexpr (R > 1) {
    if (rows < R) return tile_for<F, R - 1>(rows, panels);
  }
  return tile_of<F, R>(panels);
}

// All rows by panels [begin, end), written through `to`, whose column 0 is column `base` of the matrix.
template <typename F>
void product(const GemmJob& job, size_t begin, size_t end, const Store& to, size_t base) {
  const auto* x = static_cast<const typename F::Row*>(job.x);
  const auto* w = static_cast<const typename F::Weight*>(job.packed);
  const size_t stride = job.steps * F::kWeights;
  const size_t most = panels_for(job.tiles.size(0));
  for (size_t panel = begin; panel < end; panel += most) {
    const size_t panels = end - panel < most ? end - panel : most;
    for (size_t t = 0; t < job.tiles.tiles; ++t) {
      const size_t rows = job.tiles.size(t), row = job.tiles.start(t), allowed = panels_for(rows);
      for (size_t done = 0; done < panels; done += allowed) {
        const size_t now = panels - done < allowed ? panels - done : allowed;
        tile_for<F>(rows, now)(x + row * job.steps, w + (panel + done) * stride, stride, job.steps, to, row,
                               (panel + done) * kPanel - base);
      }
    }
  }
}

template <typename F>
void gemm(const GemmJob& job, size_t begin, size_t end) {
  Store to{nullptr, job.y_row, job.n, job.bias, job.add};
  if (job.narrow)
    to.narrow = static_cast<uint16_t*>(job.y);
  else
    to.y = static_cast<float*>(job.y);
  product<F>(job, begin, end, to, 0);
}

BlockSummary summarise(const float* y, size_t n, size_t column) {
  const Lanes lowest = splat(-__builtin_inff());
  Lanes most = lowest;
  for (size_t i = 0; i < n; i += kLanes) most = max(keep(load(y + i), n - i < kLanes ? n - i : kLanes, lowest), most);
  const float top = highest(most);
  size_t at = 0;
  while (at + 1 < n && y[at] != top) ++at;
  Lanes total = splat(0.0f), second = lowest;
  for (size_t i = 0; i < n; i += kLanes) {
    const size_t width = n - i < kLanes ? n - i : kLanes;
    const Lanes value = keep(load(y + i), width, lowest);
    total = total + exp(value - splat(top));
    if (at - i < kLanes) {
      float buffer[kLanes];
      store(buffer, value);
      buffer[at - i] = -__builtin_inff();
      second = max(load(buffer), second);
    } else {
      second = max(value, second);
    }
  }
  return {top, highest(second), sum(total), static_cast<int32_t>(column + at)};
}

template <typename F>
void summary(const GemmJob& job, size_t begin, size_t end, size_t blocks, BlockSummary* out) {
  alignas(64) float y[kMaxTileRows * kSummaryColumns];
  const size_t panels = (job.n + kPanel - 1) / kPanel, per_block = kSummaryColumns / kPanel;
  for (size_t block = begin; block < end; ++block) {
    const size_t first = block * per_block, last = first + per_block < panels ? first + per_block : panels;
    const size_t column = block * kSummaryColumns,
                 width = job.n - column < kSummaryColumns ? job.n - column : kSummaryColumns;
    for (size_t t = 0; t < job.tiles.tiles; ++t) {
      const size_t row = job.tiles.start(t), rows = job.tiles.size(t);
      GemmJob part = job;
      part.x = static_cast<const typename F::Row*>(job.x) + row * job.steps;
      part.tiles = {rows, 1};
      product<F>(part, first, last, {y, kSummaryColumns, width, nullptr, false}, column);
      for (size_t r = 0; r < rows; ++r)
        out[(row + r) * blocks + block] = summarise(y + r * kSummaryColumns, width, column);
    }
  }
}

}  // namespace

void gemm_f32(const GemmJob& job, size_t begin, size_t end) {
  gemm<F32>(job, begin, end);
}
void gemm_bf16(const GemmJob& job, size_t begin, size_t end) {
  gemm<Bf16>(job, begin, end);
}
void summary_f32(const GemmJob& job, size_t begin, size_t end, size_t blocks, BlockSummary* out) {
  summary<F32>(job, begin, end, blocks, out);
}
void summary_bf16(const GemmJob& job, size_t begin, size_t end, size_t blocks, BlockSummary* out) {
  summary<Bf16>(job, begin, end, blocks, out);
}

}  // namespace sf::kernels::SF_ISA
