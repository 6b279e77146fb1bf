// SPDX-License-Identifier: Apache-2.0
#include "base/new_dirs.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace sf {
namespace fs = std::filesystem;

NewDirs::NewDirs(const fs::path& dir) {
  std::vector<fs::path> missing;  // innermost first
  std::error_code ignored;
  for (fs::path at = dir; !at.empty() && !fs::exists(at, ignored) && at != at.parent_path(); at = at.parent_path()) {
    SF_CHECK(at.filename() != "..", Exit::kCantCreate, "cannot create {}: {} does not exist", dir.string(),
             at.parent_path().string());
    if (at.has_filename() && at.filename() != ".") missing.push_back(at);
  }
  std::reverse(missing.begin(), missing.end());
  for (const fs::path& at : missing) {
    if (::mkdir(at.c_str(), 0777) == 0) {
      made_.push_back(at);
    } else if (int number = errno; number != EEXIST || !fs::is_directory(at, ignored)) {  // another run may be as quick
      remove_empty();
      fail(exit_of_errno(number, Exit::kCantCreate), "cannot create {}: {}", at.string(), errno_text(number));
    }
  }
}

NewDirs& NewDirs::operator=(NewDirs&& other) noexcept {
  std::swap(made_, other.made_);
  return *this;
}

void NewDirs::remove_empty() noexcept {
  for (auto at = made_.rbegin(); at != made_.rend(); ++at) ::rmdir(at->c_str());
  made_.clear();
}

}  // namespace sf
