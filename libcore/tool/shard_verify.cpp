// SPDX-License-Identifier: Apache-2.0
#include "tool/shard_verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/adapter.h"
#include "arch/decoder.h"
#include "arch/drafts.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/present.h"
#include "ckpt/buffers.h"
#include "ckpt/draft.h"
#include "stream/feature_dir.h"
#include "tool/names.h"

namespace sf::tool {
namespace {

using Problems = std::vector<std::string>;

bool is_draft(const ckpt::Checkpoint& open) {
  return arch::find_draft_family(open.config()) != nullptr;
}

void check_digests(const ckpt::Checkpoint& open, Problems& problems) {
  if (!open.has_manifest()) {
    problems.push_back("manifest.json is missing: nothing says what the bytes should be");
    return;
  }
  for (const std::string& name : open.verify())
    problems.push_back(
        name == "identity"
            ? std::string("identity: names, types, shapes, digests or config.json differ from what was published")
            : fmt::format("{}: bytes differ from the manifest's digest, or one of them is missing", name));
  // What nobody published is not as published either.
  for (const auto& entry : std::filesystem::directory_iterator(open.dir())) {
    std::string name = entry.path().filename().string();
    bool tensors = std::any_of(open.files().begin(), open.files().end(),
                               [&](const auto& file) { return file.path().filename() == name; });
    if (!tensors && name != "manifest.json" && !open.manifest().digests.contains(name))
      problems.push_back(fmt::format("{}: is there, but was not published", name));
  }
}

// Records of features carry their hashes; the first damage ends the reading.
Problems verify_features(const std::filesystem::path& dir) {
  try {
    stream::inspect_features(dir);
  } catch (const Error& error) {
    if (error.code() != Exit::kData && error.code() != Exit::kNoInput) throw;
    return {error.what()};
  }
  return {};
}

void check_aliases(const ckpt::Checkpoint& open, const arch::ModelSpec& spec, Problems& problems) {
  for (const arch::Alias& wanted : spec.aliases) {
    bool found = std::any_of(open.aliases().begin(), open.aliases().end(), [&](const arch::Alias& a) {
      return (a.name == wanted.name && a.of == wanted.of) || (a.name == wanted.of && a.of == wanted.name);
    });
    if (!found)
      problems.push_back(fmt::format("{}: config.json ties it to {}, no alias says so", wanted.name, wanted.of));
  }
  for (const arch::Alias& alias : open.aliases())
    if (spec.storage_of(alias.name) == alias.name && spec.storage_of(alias.of) == alias.of)
      problems.push_back(
          fmt::format("{}: recorded as an alias of {}, which config.json does not tie", alias.name, alias.of));
}

// A trainer's checkpoint also holds optimizer state under names of its own.
bool is_optimizer_state(const arch::ModelSpec& spec, const std::string& name) {
  for (std::string_view suffix : {".exp_avg", ".exp_avg_sq", ".master"})
    if (name.ends_with(suffix) && spec.find(std::string_view(name).substr(0, name.size() - suffix.size()))) return true;
  return name.starts_with("optimizer.");
}

void check_completeness(const ckpt::Checkpoint& open, const arch::ModelSpec& spec, Problems& problems) {
  NameCheck check = check_names(open, spec);
  std::map<std::string, std::string> taken;
  if (is_draft(open) && open.manifest().extra.contains("target")) taken = ckpt::target_of(open).taken;
  for (const std::string& name : check.missing)
    if (!taken.contains(name)) problems.push_back(fmt::format("{}: missing", name));
  for (const std::string& text : check.misshapen) problems.push_back(text);
  for (const std::string& name : check.unexpected)
    if (open.manifest().kind != "train" || !is_optimizer_state(spec, name))
      problems.push_back(fmt::format("{}: has no place in the {} family", name, spec.family));
}

void check_vocab_map(const ckpt::Checkpoint& open, Problems& problems) {
  if (!open.contains("d2t") || !open.contains("t2d")) return;  // named as missing already
  try {
    ckpt::read_vocab_map(open);
  } catch (const Error& error) {
    problems.push_back(error.what());
  }
}

// Where the adapter's target was, if it still is there.
std::optional<ckpt::Checkpoint> target_beside(const ckpt::Checkpoint& adapter) {
  if (!adapter.manifest().extra.contains("target")) return std::nullopt;
  ckpt::TargetLink link = ckpt::target_of(adapter);
  std::error_code ignored;
  if (!std::filesystem::is_directory(link.path, ignored)) return std::nullopt;
  ckpt::Checkpoint found = ckpt::Checkpoint::open(link.path);
  return found.manifest().identity == link.identity ? std::optional(std::move(found)) : std::nullopt;
}

// Its target says what an adapter is made of; without that every A must have its B at least.
void check_adapter(const ckpt::Checkpoint& open, Problems& problems) {
  arch::Lora lora = arch::lora_from_config(open.config());
  if (std::optional<ckpt::Checkpoint> target = target_beside(open)) {
    arch::ModelSpec spec = arch::describe(arch::decoder_from_config(target->config()));
    arch::ModelSpec own{.family = "lora", .parameters = arch::parameters_of(arch::adapters_of(lora, spec))};
    return check_completeness(open, own, problems);
  }
  for (std::string name : open.names()) {
    size_t at = name.rfind(".lora_A.");
    if (at == std::string::npos) at = name.rfind(".lora_B.");
    if (at == std::string::npos) {
      problems.push_back(fmt::format("{}: is no part of an adapter", name));
      continue;
    }
    std::string other = name;
    char& letter = other[at + std::string_view(".lora_").size()];
    letter = letter == 'A' ? 'B' : 'A';
    if (!open.contains(other)) problems.push_back(fmt::format("{}: missing", other));
  }
}

// A directory that cannot be opened as a checkpoint is not whole, and that is the answer, not an accident.
std::optional<ckpt::Checkpoint> opened(const std::filesystem::path& dir, Problems& problems) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(dir, ignored)) ckpt::Checkpoint::open(dir);  // says what it is
  try {
    return ckpt::Checkpoint::open(dir);
  } catch (const Error& error) {
    if (error.code() == Exit::kOs || error.code() == Exit::kNoPermission) throw;
    problems.push_back(error.what());
    return std::nullopt;
  }
}

}  // namespace

Problems verify(const std::filesystem::path& dir) {
  std::error_code ignored;
  if (is_present(dir / "contract.json")) return verify_features(dir);
  Problems problems;
  std::optional<ckpt::Checkpoint> found = opened(dir, problems);
  if (!found) return problems;
  const ckpt::Checkpoint& open = *found;
  if (!fault("tool.skip_digests")) check_digests(open, problems);
  arch::ModelSpec spec;
  try {
    if (arch::is_adapter_config(open.config())) {
      check_adapter(open, problems);
      return problems;
    }
    const arch::DraftFamily* family = arch::find_draft_family(open.config());
    spec = family ? family->describe(open.config()) : arch::describe(arch::decoder_from_config(open.config()));
  } catch (const Error& error) {
    problems.push_back(error.what());
    return problems;
  }
  check_completeness(open, spec, problems);
  check_aliases(open, spec, problems);
  for (std::string& problem : ckpt::buffer_problems(open, spec)) problems.push_back(std::move(problem));
  if (open.config().contains("draft_vocab_size")) check_vocab_map(open, problems);
  return problems;
}

}  // namespace sf::tool
