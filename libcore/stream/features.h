// SPDX-License-Identifier: Apache-2.0
// Types that states are carried in, by the names of contracts: "F32", "BF16", and "F8_E4M3", whose elements are U8 and
// count times the scale of their token and layer, in a tensor NAME.scale F32 [S, layers].
#pragma once
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace sf::stream {

inline constexpr std::string_view kFloat8 = "F8_E4M3";
inline constexpr std::string_view kScaleSuffix = ".scale";
std::string feature_type(std::string_view configured);  // of capture.feature_dtype: fp32, bf16, fp8
Dtype feature_element(std::string_view feature_dtype);  // of the tensors; kData for a name that is none

}  // namespace sf::stream
