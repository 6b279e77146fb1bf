// SPDX-License-Identifier: Apache-2.0
// Which instructions the kernels use. All forms share one formula, so they share their bits, but for the bf16 product.
#pragma once

namespace sf::kernels {

enum class Isa { kPortable, kAvx2, kAvx512 };  // AVX2 with FMA; AVX-512 F BW DQ VL with BF16

Isa best_isa();         // of this processor
Isa isa();              // in use; the best one unless set
void use_isa(Isa isa);  // for tests and bench; no more than best_isa(). Not while kernels run
const char* name_of(Isa isa);

}  // namespace sf::kernels
