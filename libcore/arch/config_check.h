// SPDX-License-Identifier: Apache-2.0
// Settings of a config.json within bounds. Private to this room.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"

namespace sf::arch {

// Larger than any model's, small enough that the element count of a whole model fits int64.
constexpr int64_t kMaxExtent = int64_t{1} << 22;

// A size that a config must state: an integer in [1, most]. kData naming the key if it is absent, null or of another
// type (a default would describe another model); kConfig naming key, range and value if it is out of range.
int64_t size_of_config(const Json& config, std::string_view key, int64_t most = kMaxExtent);
// One that follows from others: `otherwise` if absent or null.
int64_t positive(const Json& config, std::string_view key, int64_t otherwise, int64_t most = kMaxExtent);
double in_range(double value, std::string_view key, double lo, double hi);  // lo < value <= hi, else kConfig

// Key "dtype", else "torch_dtype", else float32. Written under both names, for old and new readers.
Dtype dtype_of_config(const Json& config);
void dtype_to_config(Dtype type, Json& config);

// `otherwise` counts if the key is absent; null means none (-1, empty). eos may be one id or a list. kConfig for an id
// outside the vocabulary.
int64_t bos_of_config(const Json& config, int64_t otherwise, int64_t vocab);
std::vector<int64_t> eos_of_config(const Json& config, int64_t otherwise, int64_t vocab);
void tokens_to_config(int64_t bos, const std::vector<int64_t>& eos, Json& config);

}  // namespace sf::arch
