// SPDX-License-Identifier: Apache-2.0
#include "tool/run_dir.h"

#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/checkpoint.h"

namespace sf::tool {

namespace fs = std::filesystem;

void refuse_what_is_no_run(const fs::path& dir) {
  std::error_code ignored;
  for (const char* mark : {"manifest.json", "contract.json", "config.json"})
    SF_CHECK(!fs::exists(dir / mark, ignored), Exit::kCantCreate,
             "{} holds a checkpoint or features ({}), not a run; choose another -o", dir.string(), mark);
}

std::optional<fs::path> resume_point(app::Invocation& invocation, const fs::path& dir) {
  std::string resume = invocation.get("resume", "none");
  if (resume != "auto" && resume != "none") return fs::path(resume);
  std::optional<fs::path> found = ckpt::latest_checkpoint(dir);
  if (resume == "auto") return found;
  SF_CHECK(!found, Exit::kCantCreate, "{} holds a run already ({}); give --resume auto to go on, or another -o",
           dir.string(), found->filename().string());
  return std::nullopt;
}

void check_run_dir(app::Invocation& invocation) {
  fs::path dir = invocation.get("output"), there = fs::absolute(dir);
  refuse_what_is_no_run(dir);
  std::error_code ignored;
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  SF_CHECK(fs::is_directory(there, ignored) && access(there.c_str(), W_OK) == 0, Exit::kCantCreate,
           "cannot create {}: {} is no directory that may be written to", dir.string(), there.string());
  // Only one that is there is taken, for a moment: whoever holds it is named, and nothing new is made.
  if (fs::exists(dir / ".lock", ignored)) DirLock::acquire(dir, invocation.command_line());
  if (std::optional<fs::path> from = resume_point(invocation, dir)) ckpt::Checkpoint::open(*from);
}

}  // namespace sf::tool
