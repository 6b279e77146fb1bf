// SPDX-License-Identifier: Apache-2.0
// What stands where an output would go. All throw kCantCreate naming it.
#pragma once
#include <filesystem>

namespace sf::tool {

// An output that must be new: nothing has its name, and the directory it is made in is no checkpoint and holds no
// features.
void refuse_existing(const std::filesystem::path& out);
// The directory of a new file is there and may be written to.
void require_place_for(const std::filesystem::path& out);
// A directory that will be made if it is not there: what is there of its path is a directory, the last of it one that
// may be written to.
void require_place_for_dir(const std::filesystem::path& dir);
// An output that replaces its like and nothing else: reasons of void rows, the handle of a stream. An empty file holds
// nothing.
void refuse_all_but_reasons(const std::filesystem::path& file);
void refuse_all_but_handle(const std::filesystem::path& file);

}  // namespace sf::tool
