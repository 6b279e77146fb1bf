// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>

namespace sf {

// Something has this name, be it a symbolic link that leads nowhere: such a link is a part that is damaged, not one
// that was left out, and opening it says so.
bool is_present(const std::filesystem::path& path);

}  // namespace sf
