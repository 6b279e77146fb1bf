// SPDX-License-Identifier: Apache-2.0
#include "tool/float8.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace sf::tool {
namespace {

int64_t blocks(int64_t extent, int64_t block) {
  return (extent + block - 1) / block;
}

std::array<float, 256> make_table() {
  std::array<float, 256> table{};
  for (size_t bits = 0; bits < table.size(); ++bits) table[bits] = e4m3_to_float(static_cast<uint8_t>(bits));
  return table;
}

std::vector<float> floats_of(const StoredTensor& tensor) {
  std::vector<std::byte> raw(tensor.bytes);
  tensor.read(0, raw);
  std::vector<float> out(static_cast<size_t>(numel(tensor.shape)));
  convert(raw, *tensor.dtype, std::as_writable_bytes(std::span(out)), Dtype::kF32);
  return out;
}

}  // namespace

float e4m3_to_float(uint8_t bits) {
  int exponent = bits >> 3 & 15, fraction = bits & 7;
  float sign = bits & 0x80 ? -1.0f : 1.0f;
  if (exponent == 15 && fraction == 7) return NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -9);
  return sign * std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
}

void check_float8(const Float8& t) {
  SF_CHECK(t.weight.shape.size() == 2, Exit::kData, "\"{}\" is {}, wanted a matrix", t.weight.name,
           to_string(t.weight.shape));
  Shape wanted{blocks(t.weight.shape[0], t.block_rows), blocks(t.weight.shape[1], t.block_columns)};
  SF_CHECK(t.scale.shape == wanted, Exit::kData, "\"{}\" is {}, wanted {}: one scale a block of {} x {}", t.scale.name,
           to_string(t.scale.shape), to_string(wanted), t.block_rows, t.block_columns);
  SF_CHECK(t.scale.dtype == Dtype::kF32 || t.scale.dtype == Dtype::kBF16 || t.scale.dtype == Dtype::kF16, Exit::kData,
           "\"{}\" is {}, wanted F32, BF16 or F16", t.scale.name, t.scale.type);
}

void dequantise(const Float8& t, Dtype as, const ckpt::TensorSource::Sink& sink) {
  static const std::array<float, 256> kTable = make_table();
  int64_t rows = t.weight.shape[0], columns = t.weight.shape[1];
  std::vector<float> scale = floats_of(t.scale);
  int64_t scales_a_row = t.scale.shape[1];
  int64_t at_once =
      std::max<int64_t>(1, static_cast<int64_t>(ckpt::kBounceBytes / sizeof(float)) / std::max<int64_t>(columns, 1));
  std::vector<std::byte> raw, out;
  std::vector<float> values;
  for (int64_t lo = 0; lo < rows && columns > 0; lo += at_once) {
    int64_t hi = std::min(rows, lo + at_once);
    raw.resize(static_cast<size_t>((hi - lo) * columns));
    t.weight.read(static_cast<uint64_t>(lo * columns), raw);
    values.resize(raw.size());
    for (int64_t row = lo; row < hi; ++row) {
      const float* scales = scale.data() + row / t.block_rows * scales_a_row;
      size_t first = static_cast<size_t>((row - lo) * columns);
      for (int64_t c = 0; c < columns; ++c) {
        size_t at = first + static_cast<size_t>(c);
        values[at] = kTable[static_cast<uint8_t>(raw[at])] * scales[c / t.block_columns];
      }
    }
    out.resize(values.size() * size_of(as));
    convert(std::as_bytes(std::span(values)), Dtype::kF32, out, as);
    sink(out);
  }
}

}  // namespace sf::tool
