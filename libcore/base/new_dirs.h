// SPDX-License-Identifier: Apache-2.0
// Directories made on the way to an output: a failure takes them away again.
#pragma once
#include <filesystem>
#include <vector>

namespace sf {

// Makes `dir` and what of its parents is missing; kCantCreate if that cannot be, or if the way leads back ("..")
// through a directory that does not exist. Those that are empty when it is destroyed are removed.
class NewDirs {
 public:
  NewDirs() = default;
  explicit NewDirs(const std::filesystem::path& dir);
  NewDirs(NewDirs&& other) noexcept : made_(std::move(other.made_)) { other.made_.clear(); }
  NewDirs& operator=(NewDirs&& other) noexcept;
  ~NewDirs() { remove_empty(); }

 private:
  void remove_empty() noexcept;
  std::vector<std::filesystem::path> made_;  // outermost first
};

}  // namespace sf
