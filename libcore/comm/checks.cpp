// SPDX-License-Identifier: Apache-2.0
#include "comm/checks.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace sf::comm {
namespace {

// Below it the peer finds the bytes sooner in a cache.
constexpr size_t kWorthStreaming = size_t{64} << 10;

}  // namespace

void check_part(const GatherPart& part, int rank, int world) {
  SF_ASSERT(part.sizes.size() == static_cast<size_t>(world));
  SF_ASSERT(part.mine.size() == part.sizes[static_cast<size_t>(rank)]);
  SF_ASSERT(part.into.size() == std::accumulate(part.sizes.begin(), part.sizes.end(), size_t{0}));
}

void check_fold(std::span<const float> gradient, bool present, std::span<const size_t> offsets,
                std::span<const float> acc, int rank, int world) {
  auto mine = static_cast<size_t>(rank);
  SF_ASSERT(offsets.size() == static_cast<size_t>(world) + 1 && offsets[0] == 0);
  for (size_t r = 0; r + 1 < offsets.size(); ++r) SF_ASSERT(offsets[r] <= offsets[r + 1]);
  SF_ASSERT(!present || gradient.size() == offsets.back());
  SF_ASSERT(acc.size() == offsets[mine + 1] - offsets[mine]);
}

void Group::reduce_given(const GiveGradient& give, bool present, std::span<const size_t> offsets, std::span<float> acc,
                         const Call& call) {
  std::vector<float> whole(present ? offsets.back() : 0);
  if (present) give(0, whole);
  reduce_fold(whole, present, offsets, acc, call);
}

void copy_for_peers(std::byte* to, const std::byte* from, size_t bytes) {
  size_t head = std::min(bytes, (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64);
  if (bytes < kWorthStreaming) head = bytes;
  std::memcpy(to, from, head);
  size_t lines = (bytes - head) / 64;
  auto* target = reinterpret_cast<__m128i*>(to + head);
  const auto* source = reinterpret_cast<const __m128i*>(from + head);
  for (size_t i = 0; i < lines * 4; i += 4) {
    for (size_t j = 0; j < 4; ++j) _mm_stream_si128(target + i + j, _mm_loadu_si128(source + i + j));
  }
  _mm_sfence();
  size_t done = head + lines * 64;
  std::memcpy(to + done, from + done, bytes - done);
}

std::string in_one_line(std::string_view text) {
  std::string line;
  for (char letter : text) line += letter == '\n' ? std::string_view("; ") : std::string_view(&letter, 1);
  return line;
}

void fold_into(std::span<float> acc, const float* __restrict from) {
  float* __restrict to = acc.data();
  for (size_t i = 0, n = acc.size(); i < n; ++i) to[i] += from[i];
}

}  // namespace sf::comm
