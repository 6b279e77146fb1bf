// SPDX-License-Identifier: Apache-2.0
// Read once a target instead of once a source: others' headers only, so that no change of ours spoils it. Sources still
// include what they use; a test compiles each header alone.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
