// SPDX-License-Identifier: Apache-2.0
// RUN/latest and RUN/best, and which checkpoint of a run is the newest whole one.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "ckpt/as_published.h"
#include "ckpt/checkpoint.h"

namespace sf::ckpt {
namespace fs = std::filesystem;
namespace {

void point(const fs::path& run_dir, const std::string& link, const std::string& name) {
  fs::path temporary = run_dir / fmt::format(".{}.tmp-{}", link, getpid());
  ::unlink(temporary.c_str());
  SF_CHECK(::symlink(name.c_str(), temporary.c_str()) == 0, exit_of_errno(errno, Exit::kCantCreate),
           "cannot create {}: {}", temporary.string(), errno_text(errno));
  if (::rename(temporary.c_str(), (run_dir / link).c_str()) != 0) {
    int number = errno;
    ::unlink(temporary.c_str());
    fail(exit_of_errno(number, Exit::kCantCreate), "cannot move {} to {}: {}", (run_dir / link).string(), name,
         errno_text(number));
  }
  sync_dir(run_dir);
}

}  // namespace

void point_latest(const fs::path& run_dir, const std::string& name) {
  point(run_dir, "latest", name);
}

void point_best(const fs::path& run_dir, const std::string& name) {
  point(run_dir, "best", name);
}

std::optional<fs::path> best_checkpoint(const fs::path& run_dir) {
  std::error_code error;
  fs::path name = fs::read_symlink(run_dir / "best", error);
  return !error && fs::is_directory(run_dir / name, error) ? std::optional(run_dir / name) : std::nullopt;
}

namespace {

// Why a checkpoint cannot be gone on from; empty: it is whole.
std::string damage_of(const fs::path& dir) {
  try {
    const Checkpoint files = Checkpoint::open(dir);
    if (!files.has_manifest()) return "it has no manifest.json, which is written last: it was not finished";
    std::vector<std::string> wrong = files.verify();
    return wrong.empty() ? "" : "not what was published: " + listed(wrong);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

Latest newest_checkpoint(const fs::path& run_dir) {
  Latest found;
  std::error_code ignored;
  std::vector<std::pair<int64_t, fs::path>> steps;
  for (const auto& entry : fs::directory_iterator(run_dir, ignored)) {
    std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (!name.starts_with("step-")) continue;
    auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (error == std::errc() && end == name.data() + name.size()) steps.emplace_back(step, entry.path());
  }
  auto take = [&](const fs::path& path) {
    std::string why = damage_of(path);
    if (why.empty())
      found.whole = path;
    else
      found.damaged.push_back(fmt::format("{}: {}", path.filename().string(), why));
    return why.empty();
  };
  // A kill between a publication and the move of `latest` leaves a newer step than `latest` names.
  std::sort(steps.rbegin(), steps.rend());
  for (const auto& [step, path] : steps)
    if (take(path)) return found;
  fs::path link = run_dir / "latest";
  if (!fs::is_symlink(link, ignored)) return found;
  fs::path target = run_dir / fs::read_symlink(link, ignored);
  bool seen = std::any_of(steps.begin(), steps.end(), [&](const auto& step) { return step.second == target; });
  if (!seen) take(target);
  return found;
}

std::optional<fs::path> latest_checkpoint(const fs::path& run_dir) {
  return newest_checkpoint(run_dir).whole;
}

void remove_unfinished(const fs::path& run_dir) {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(run_dir, ignored)) {
    std::string name = entry.path().filename().string();
    bool ours = name.starts_with(".step-") || name.starts_with(".latest.") || name.starts_with(".best.");
    if (ours && name.find(".tmp-") != std::string::npos) left.push_back(entry.path());
  }
  for (const fs::path& path : left) fs::remove_all(path, ignored);
}

}  // namespace sf::ckpt
