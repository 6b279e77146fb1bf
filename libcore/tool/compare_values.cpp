// SPDX-License-Identifier: Apache-2.0
#include "tool/compare_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace sf::tool {
namespace {

constexpr int64_t kPiece = int64_t{1} << 19;  // elements compared at once

bool is_float(Dtype type) {
  return type == Dtype::kF64 || type == Dtype::kF32 || type == Dtype::kF16 || type == Dtype::kBF16;
}

// Neither of the two 16-bit floats holds the other's values.
Dtype narrower(Dtype a, Dtype b) {
  if (a == b) return a;
  if (size_of(a) == size_of(b)) return Dtype::kF32;
  return size_of(a) < size_of(b) ? a : b;
}

// Floats in the order of their values: neighbours are one apart, both zeros are 0.
template <typename Bits>
int64_t ordered(Bits bits) {
  constexpr Bits kSign = Bits{1} << (sizeof(Bits) * 8 - 1);
  auto magnitude = static_cast<int64_t>(bits & static_cast<Bits>(~kSign));
  return bits & kSign ? -magnitude : magnitude;
}

template <typename Bits>
struct FloatOrder {
  Bits infinity;  // exponent bits all set

  uint64_t operator()(Bits a, Bits b) const {
    constexpr Bits kSign = Bits{1} << (sizeof(Bits) * 8 - 1);
    if ((a & ~kSign) > infinity || (b & ~kSign) > infinity) return kNoDistance;
    int64_t x = ordered(a), y = ordered(b);
    return x > y ? static_cast<uint64_t>(x) - static_cast<uint64_t>(y)
                 : static_cast<uint64_t>(y) - static_cast<uint64_t>(x);
  }
};

template <typename T>
struct WholeOrder {
  uint64_t operator()(T a, T b) const {
    return a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
                 : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
  }
};

template <typename T, typename Order>
void compare_piece(const std::byte* a, const std::byte* b, int64_t count, std::optional<uint64_t> most, Order order,
                   Compared& found) {
  for (int64_t i = 0; i < count; ++i) {
    T x, y;
    std::memcpy(&x, a + static_cast<size_t>(i) * sizeof(T), sizeof x);
    std::memcpy(&y, b + static_cast<size_t>(i) * sizeof(T), sizeof y);
    if (x == y) continue;
    uint64_t apart = order(x, y);
    if (most && apart <= *most) continue;
    if (found.differ++ == 0) found.first = found.elements + i;
    found.most_ulp = std::max(found.most_ulp, apart);
  }
}

void compare_piece(Dtype type, const std::byte* a, const std::byte* b, int64_t count, std::optional<uint64_t> most,
                   Compared& found) {
  switch (type) {
    case Dtype::kF64:
      return compare_piece<uint64_t>(a, b, count, most, FloatOrder<uint64_t>{0x7ff0'0000'0000'0000u}, found);
    case Dtype::kF32:
      return compare_piece<uint32_t>(a, b, count, most, FloatOrder<uint32_t>{0x7f80'0000u}, found);
    case Dtype::kBF16:
      return compare_piece<uint16_t>(a, b, count, most, FloatOrder<uint16_t>{0x7f80u}, found);
    case Dtype::kF16:
      return compare_piece<uint16_t>(a, b, count, most, FloatOrder<uint16_t>{0x7c00u}, found);
    case Dtype::kI64:
      return compare_piece<int64_t>(a, b, count, most, WholeOrder<int64_t>{}, found);
    case Dtype::kI32:
      return compare_piece<int32_t>(a, b, count, most, WholeOrder<int32_t>{}, found);
    case Dtype::kI16:
      return compare_piece<int16_t>(a, b, count, most, WholeOrder<int16_t>{}, found);
    case Dtype::kI8:
      return compare_piece<int8_t>(a, b, count, most, WholeOrder<int8_t>{}, found);
    default:
      return compare_piece<uint8_t>(a, b, count, most, WholeOrder<uint8_t>{}, found);
  }
}

std::string shown(Dtype type, const std::byte* at) {
  if (is_float(type)) {
    double value;
    convert({at, size_of(type)}, type, std::as_writable_bytes(std::span(&value, 1)), Dtype::kF64);
    return fmt::format("{:.{}g}", value, type == Dtype::kF64 ? 17 : 9);
  }
  int64_t value = 0;
  std::memcpy(&value, at, size_of(type));
  int unused = static_cast<int>(64 - 8 * size_of(type));
  bool unsigned_type = type == Dtype::kU8 || type == Dtype::kBool;
  return std::to_string(unsigned_type ? value : (value << unused) >> unused);
}

// One side, a piece at a time, in the common type.
class Side {
 public:
  Side(const StoredTensor& tensor, Dtype from, Dtype as) : tensor_(&tensor), from_(from), as_(as) {}

  const std::byte* piece(int64_t lo, int64_t hi) {
    raw_.resize(static_cast<size_t>(hi - lo) * size_of(from_));
    tensor_->read(static_cast<uint64_t>(lo) * size_of(from_), raw_);
    if (from_ == as_) return raw_.data();
    values_.resize(static_cast<size_t>(hi - lo) * size_of(as_));
    convert(raw_, from_, values_, as_);
    return values_.data();
  }

 private:
  const StoredTensor* tensor_;
  Dtype from_, as_;
  std::vector<std::byte> raw_, values_;
};

}  // namespace

Compared compare_values(const StoredTensor& a, const StoredTensor& b, std::optional<uint64_t> most_ulp) {
  bool raw = !a.dtype || !b.dtype;
  Dtype of_a = a.dtype.value_or(Dtype::kU8), of_b = b.dtype.value_or(Dtype::kU8);
  SF_CHECK(a.type == b.type || (!raw && is_float(of_a) && is_float(of_b)), Exit::kData, "{} and {} have no common type",
           a.type, b.type);
  Dtype as = of_a == of_b ? of_a : narrower(of_a, of_b);
  Compared found;
  found.as = raw ? "bytes of " + a.type : std::string(name_of(as));
  int64_t count = raw ? static_cast<int64_t>(a.bytes) : numel(a.shape);
  Side left(a, of_a, as), right(b, of_b, as);
  for (int64_t lo = 0; lo < count; lo += kPiece) {
    int64_t hi = std::min(count, lo + kPiece);
    const std::byte *x = left.piece(lo, hi), *y = right.piece(lo, hi);
    bool any = std::memcmp(x, y, static_cast<size_t>(hi - lo) * size_of(as)) != 0, before = found.differ > 0;
    if (any) compare_piece(as, x, y, hi - lo, raw ? std::nullopt : most_ulp, found);
    if (!before && found.differ > 0) {
      auto at = static_cast<size_t>(found.first - lo) * size_of(as);
      found.first_a = shown(as, x + at);
      found.first_b = shown(as, y + at);
    }
    found.elements = hi;
  }
  return found;
}

}  // namespace sf::tool
