// SPDX-License-Identifier: Apache-2.0
#include "tool/run_dir.h"

#include "base/error.h"
#include "base/file.h"
#include "ckpt/as_published.h"
#include "tool/outputs.h"

namespace sf::tool {

namespace fs = std::filesystem;

void refuse_what_is_no_run(const fs::path& dir) {
  std::error_code ignored;
  for (const char* mark : {"manifest.json", "contract.json", "config.json"})
    SF_CHECK(!fs::exists(dir / mark, ignored), Exit::kCantCreate,
             "{} holds a checkpoint or features ({}), not a run; choose another -o", dir.string(), mark);
  refuse_to_replace(dir);
}

namespace {

// A checkpoint that is named must be whole too.
fs::path whole(const fs::path& checkpoint) {
  std::vector<std::string> wrong = ckpt::Checkpoint::open(checkpoint).verify();
  SF_CHECK(wrong.empty(), Exit::kData, "{} is not what was published: {}", checkpoint.string(), ckpt::listed(wrong));
  return checkpoint;
}

}  // namespace

std::optional<fs::path> resume_point(app::Invocation& invocation, const fs::path& dir) {
  std::string resume = invocation.get("resume", "none");
  if (resume != "auto" && resume != "none") return whole(resume);
  auto [found, damaged] = ckpt::newest_checkpoint(dir);
  if (resume == "none") {
    SF_CHECK(!found && damaged.empty(), Exit::kCantCreate,
             "{} holds a run already ({}); give --resume auto to go on, or another -o", dir.string(),
             found ? found->filename().string() : damaged.front());
    return std::nullopt;
  }
  // Beginning anew would drop what the run has learned; that is for people to decide.
  SF_CHECK(found || damaged.empty(), Exit::kData,
           "no checkpoint of {} is whole ({}): bring one back, or remove the directory to begin anew", dir.string(),
           damaged.front());
  if (invocation.ranks().rank == 0)
    for (const std::string& one : damaged) invocation.warn("passed over a damaged checkpoint: " + one);
  return found;
}

std::optional<ckpt::Checkpoint> check_run_dir(app::Invocation& invocation) {
  const fs::path dir = invocation.get("output");
  refuse_what_is_no_run(dir);
  require_place_for_dir(dir);
  std::error_code ignored;
  // Only one that is there is taken, for a moment: whoever holds it is named, and nothing new is made.
  if (fs::exists(dir / ".lock", ignored)) DirLock::acquire(dir, invocation.command_line());
  std::optional<fs::path> from = resume_point(invocation, dir);
  return from ? std::optional(ckpt::Checkpoint::open(*from)) : std::nullopt;
}

void check_same_run(app::Invocation& invocation, const ckpt::Manifest& before, const stream::Contract& samples) {
  if (before.contract.is_object()) {
    std::optional<std::string> other = stream::Contract::from_json(before.contract).difference(samples);
    SF_CHECK(!other, Exit::kProtocol, "the checkpoint was trained on other samples: {}", *other);
  }
  Json now = invocation.settings().resolved();
  const Json *old = before.config.find("training"), *ours = now.find("training");
  if (!old || !ours) return;
  if (invocation.ranks().rank != 0) return;  // every rank reads the same manifest
  for (const auto& [key, value] : ours->as_object())
    if (const Json* was = old->find(key); was && *was != value)
      invocation.warn(fmt::format("training.{} was {} when the checkpoint was made, and is {} now", key, was->dump(),
                                  value.dump()));
}

}  // namespace sf::tool
