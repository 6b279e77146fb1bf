// SPDX-License-Identifier: Apache-2.0
#include "tool/non_finite.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "base/fault.h"

namespace sf::tool {
namespace {

// NaN and infinity are the values whose exponent bits are all set.
template <typename Bits>
int64_t count(std::span<const std::byte> bytes, Bits exponent) {
  int64_t found = 0;
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    found += (bits & exponent) == exponent;
  }
  return found;
}

}  // namespace

int64_t non_finite(std::span<const std::byte> bytes, Dtype type) {
  switch (type) {
    case Dtype::kF64:
      return count<uint64_t>(bytes, 0x7ff0'0000'0000'0000u);
    case Dtype::kF32:
      return count<uint32_t>(bytes, 0x7f80'0000u);
    case Dtype::kBF16:
      return count<uint16_t>(bytes, 0x7f80u);
    case Dtype::kF16:
      return count<uint16_t>(bytes, 0x7c00u);
    default:
      return 0;
  }
}

void NonFinite::watch(std::vector<ckpt::TensorSource>& tensors, bool strict) {
  for (ckpt::TensorSource& tensor : tensors) {
    tensor.write = [this, write = std::move(tensor.write), strict, type = tensor.dtype, name = tensor.name,
                    elements = numel(tensor.shape)](const ckpt::TensorSource::Sink& sink) {
      int64_t bad = 0;
      write([&](const ckpt::Piece& piece) {
        bad += non_finite(piece.bytes, type);
        sink(piece);
      });
      if (bad == 0 || fault("tool.take_non_finite")) return;
      SF_CHECK(!strict, Exit::kData, "tensor \"{}\": {} of {} values are NaN or infinite, refused by --strict", name,
               bad, elements);
      found_.push_back(fmt::format("{} ({} of {} values)", name, bad, elements));
    };
  }
}

void NonFinite::warn(const Reporter& report) const {
  if (found_.empty()) return;
  report.warn(fmt::format("{} tensors hold NaN or infinity: {}; nothing computed with them is finite", found_.size(),
                          ckpt::listed(found_)));
}

}  // namespace sf::tool
