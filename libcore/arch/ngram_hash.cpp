// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "arch/hybrid.h"
#include "base/error.h"

namespace sf::arch {
namespace {

constexpr uint64_t kStep = 0x9E3779B97F4A7C15;  // splitmix64's
constexpr uint64_t kLayerStep = 10007;

uint64_t splitmix64(uint64_t x) {
  x += kStep;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

bool is_prime(int64_t n) {
  if (n < 2 || (n > 2 && n % 2 == 0)) return false;
  for (int64_t d = 3; d <= n / d; d += 2)
    if (n % d == 0) return false;
  return true;
}

int64_t prime_from(int64_t n) {
  while (!is_prime(n)) ++n;
  return n;
}

}  // namespace

NgramHash ngram_hash(const Ngrams& g, int64_t place, int64_t vocab) {
  SF_ASSERT(place >= 0 && vocab > 0 && g.divisor > 0);
  NgramHash hash;
  const int64_t most = std::numeric_limits<int64_t>::max() / vocab;  // a product with a token id stays within int64
  const auto half = static_cast<uint64_t>(most / 2 > 0 ? most / 2 : 1);
  for (int64_t i = 1; i <= g.longest; ++i) {
    const uint64_t state =
        static_cast<uint64_t>(g.seed) + kLayerStep * static_cast<uint64_t>(place) + kStep * static_cast<uint64_t>(i);
    hash.multipliers.push_back(static_cast<int64_t>(2 * (splitmix64(state) % half) + 1));
  }
  int64_t prime = g.base - 1, sum = 0;
  for (int64_t skipped = 0; skipped < place * g.all_heads(); ++skipped) prime = prime_from(prime + 1);
  for (int64_t head = 0; head < g.all_heads(); ++head) {
    prime = prime_from(prime + 1);
    hash.sizes.push_back(prime);
    hash.offsets.push_back(sum);
    sum += prime;
  }
  hash.rows = (sum + g.divisor - 1) / g.divisor * g.divisor;
  return hash;
}

}  // namespace sf::arch
