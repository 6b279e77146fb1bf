// SPDX-License-Identifier: Apache-2.0
#include "sf_kernels/isa.h"

#include "table.h"

namespace sf::kernels {

namespace {

Isa& chosen() {
  static Isa isa = best_isa();
  return isa;
}

}  // namespace

Isa best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

Isa isa() {
  return chosen();
}

void use_isa(Isa isa) {
  if (isa <= best_isa()) chosen() = isa;
}

const char* name_of(Isa isa) {
  return isa == Isa::kAvx512 ? "avx512" : isa == Isa::kAvx2 ? "avx2" : "portable";
}

const Table& table() {
#if defined(__x86_64__)
  if (chosen() == Isa::kAvx512) return avx512::kTable;
  if (chosen() == Isa::kAvx2) return avx2::kTable;
#endif
  return portable::kTable;
}

}  // namespace sf::kernels
