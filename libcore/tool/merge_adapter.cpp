// SPDX-License-Identifier: Apache-2.0
#include "tool/merge_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "arch/decoder.h"
#include "base/error.h"
#include "base/present.h"
#include "ckpt/adapter.h"
#include "ckpt/as_published.h"
#include "ckpt/buffers.h"
#include "ckpt/draft.h"
#include "ckpt/merge_record.h"
#include "tool/model_source.h"
#include "tool/non_finite.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

constexpr const char* kKept = "unmerged.safetensors";  // the target's own bytes of what was merged
constexpr int64_t kPiece = int64_t{1} << 20;           // elements merged at once

// Values of adapted parameters: those that are others now, those that the adapter adds something to, and all.
struct Changed {
  int64_t values = 0, added_to = 0, of = 0;
};

int64_t differing(std::span<const std::byte> a, std::span<const std::byte> b, size_t size) {
  int64_t count = 0;
  for (size_t at = 0; at < a.size(); at += size) count += std::memcmp(a.data() + at, b.data() + at, size) != 0;
  return count;
}

// In fp32, rounded once, as ckpt::read_merged does it: adding to -0 and then that gives the bits of adding at once.
void write_merged(const ckpt::Checkpoint& target, const ckpt::AdapterFiles& adapter, const std::string& name,
                  const ckpt::TensorSource::Sink& sink, Changed& changed) {
  const ckpt::TensorInfo info = target.info(name);
  const int64_t all = numel(info.shape);
  std::vector<std::byte> before, after;
  std::vector<float> wide, added;
  for (int64_t lo = 0; lo < all; lo += kPiece) {
    int64_t hi = std::min(all, lo + kPiece);
    wide.resize(static_cast<size_t>(hi - lo));
    added.assign(wide.size(), -0.0f);
    before.resize(wide.size() * size_of(info.dtype));
    after.resize(before.size());
    target.read(name, lo, hi, info.dtype, before);
    convert(before, info.dtype, std::as_writable_bytes(std::span(wide)), Dtype::kF32);
    adapter.add_to(*adapter.find(name), lo, hi, added);
    for (size_t i = 0; i < wide.size(); ++i) {
      changed.added_to += added[i] != 0;
      wide[i] += added[i];
    }
    convert(std::as_bytes(std::span(wide)), Dtype::kF32, after, info.dtype);
    changed.values += differing(before, after, size_of(info.dtype));
    sink(std::span<const std::byte>(after));
  }
  changed.of += all;
}

ckpt::TensorSource as_stored(const std::string& name, const ckpt::SafetensorsFile& file, const ckpt::TensorInfo& info) {
  return {name, info.dtype, info.shape,
          [&file, info](const ckpt::TensorSource::Sink& sink) { file.stream(info, sink); }};
}

// A Hugging Face directory may store a tied tensor under its further name too; a checkpoint records that name alone.
bool stored_twice(const ckpt::Checkpoint& target, const std::string& name, bool keep) {
  for (const arch::Alias& alias : target.aliases()) {
    if (alias.name != name) continue;
    SF_CHECK(!keep, Exit::kData,
             "{} stores \"{}\", tied to \"{}\", too, which --undo would not bring back: make a "
             "checkpoint of it with sf-init model first",
             target.dir().string(), name, alias.of);
    return true;
  }
  return false;
}

fs::path target_path(const MergeOptions& options) {
  if (!options.target.empty()) return options.target;
  fs::path path = ckpt::target_of(ckpt::Checkpoint::open(options.adapter)).path;
  SF_CHECK(is_present(path), Exit::kNoInput, "the target of adapter {} is not at {}; give --target DIR",
           options.adapter.string(), path.string());
  return path;
}

void keep_unmerged(const fs::path& dir, const ckpt::Checkpoint& target, const ckpt::AdapterFiles& adapter) {
  std::vector<ckpt::TensorInfo> declared;
  for (const arch::Adapter& each : adapter.adapters()) {
    const ckpt::TensorInfo info = target.info(each.parameter);
    declared.push_back({each.parameter, info.dtype, info.shape, 0, 0});
  }
  std::stable_sort(declared.begin(), declared.end(),
                   [](const auto& a, const auto& b) { return size_of(a.dtype) > size_of(b.dtype); });
  ckpt::SafetensorsWriter writer(dir / kKept, declared, {});
  for (const ckpt::TensorInfo& each : declared) {
    auto [file, info] = target.place(each.name);
    file->stream(info, [&](const ckpt::Piece& piece) { writer.append(piece); });
  }
  writer.finish();
}

ckpt::Manifest merged_manifest(const ckpt::Checkpoint& target, const ckpt::AdapterFiles& adapter) {
  ckpt::Manifest manifest = target.manifest();
  manifest.kind = "target";
  manifest.aliases = target.aliases();
  if (!target.has_manifest())
    manifest.buffers = ckpt::buffer_records(arch::describe(arch::decoder_from_config(target.config())));
  manifest.extra.set("merged", ckpt::merge_record(target, adapter));
  return manifest;
}

void say_changed(const Changed& changed, const Reporter& report) {
  std::string text = fmt::format("{} of {} values of adapted parameters changed", changed.values, changed.of);
  if (changed.added_to == 0) return report.say(text + ": the adapter adds nothing, as one that was not trained");
  if (2 * changed.values >= changed.added_to) return report.say(text);
  report.warn(
      text + fmt::format(": of the {} that the adapter adds to, most are swallowed by the spacing of the target's type",
                         changed.added_to));
}

// All that is checked and known before the first write. Its tensors point into it.
struct Merge {
  ckpt::Checkpoint target;
  ckpt::AdapterFiles adapter;
  Changed changed = {};
  std::vector<ckpt::TensorSource> tensors = {};
};

std::unique_ptr<Merge> prepare(const MergeOptions& options) {
  ckpt::Checkpoint opened = ckpt::Checkpoint::open(target_path(options));
  ckpt::AdapterFiles files =
      ckpt::AdapterFiles::open(options.adapter, arch::describe(arch::decoder_from_config(opened.config())));
  if (files.files().has_manifest()) ckpt::check_target(files.files(), opened);
  ckpt::check_not_merged(files, opened);
  ckpt::check_whole(opened);
  auto ready = std::make_unique<Merge>(Merge{std::move(opened), std::move(files)});
  const ckpt::Checkpoint& target = ready->target;
  for (const std::string& name : target.names()) {
    if (stored_twice(target, name, options.keep)) continue;
    auto [file, info] = target.stored_place(name);
    ckpt::TensorSource source = as_stored(name, *file, info);
    if (ready->adapter.find(name))
      source.write = [name, of = ready.get()](const auto& sink) {
        write_merged(of->target, of->adapter, name, sink, of->changed);
      };
    ready->tensors.push_back(std::move(source));
  }
  return ready;
}

struct Unmerge {
  ckpt::Checkpoint merged;
  ckpt::SafetensorsFile kept;
  std::vector<ckpt::TensorSource> tensors = {};
};

std::unique_ptr<Unmerge> prepare_undo(const fs::path& dir) {
  ckpt::Checkpoint opened = ckpt::Checkpoint::open(dir);
  const bool is_merged = opened.manifest().extra.find("merged") != nullptr;
  SF_CHECK(is_merged && is_present(dir / kKept), Exit::kData, "{} {}", dir.string(),
           is_merged ? "did not keep what merging changed: merge with --keep to be able to undo it"
                     : "is no merged checkpoint: its manifest names no adapter");
  ckpt::check_whole(opened);
  auto ready = std::make_unique<Unmerge>(Unmerge{std::move(opened), ckpt::SafetensorsFile::open(dir / kKept)});
  for (const std::string& name : ready->merged.names()) {
    auto [file, info] = ready->merged.stored_place(name);
    const ckpt::TensorInfo* own = ready->kept.find(name);
    ready->tensors.push_back(own ? as_stored(name, ready->kept, *own) : as_stored(name, *file, info));
  }
  return ready;
}

}  // namespace

fs::path merge_adapter(const MergeOptions& options) {
  std::unique_ptr<Merge> ready = prepare(options);
  auto& [target, adapter, changed, tensors] = *ready;
  report_writing(tensors, options.report);
  NonFinite bad;
  bad.watch(tensors);
  ckpt::Publisher publisher(options.out);
  copy_side_files(target.dir(), publisher.dir());
  if (options.keep) keep_unmerged(publisher.dir(), target, adapter);
  fs::path published = publisher.commit(tensors, target.config(), merged_manifest(target, adapter));
  bad.warn(options.report);
  say_changed(changed, options.report);
  return published;
}

Json plan_merge(const MergeOptions& options) {
  return would_publish(options.out, bytes_of(prepare(options)->tensors));
}

fs::path unmerge(const fs::path& dir, const fs::path& out, const Reporter& report) {
  std::unique_ptr<Unmerge> ready = prepare_undo(dir);
  auto& [merged, kept, tensors] = *ready;
  const Json* what = merged.manifest().extra.find("merged");
  report_writing(tensors, report);
  ckpt::Publisher publisher(out);
  copy_side_files(dir, publisher.dir());
  ckpt::Manifest manifest = merged.manifest();
  auto& members = manifest.extra.as_object();
  std::erase_if(members, [](const auto& member) { return member.first == "merged"; });
  if (const Json* before = what->find("before")) manifest.extra.set("merged", *before);
  std::string wanted = what->get_string("target", "");
  fs::path published = publisher.commit(tensors, merged.config(), manifest);
  std::string found = ckpt::Checkpoint::open(published).manifest().identity;
  SF_CHECK(found == wanted, Exit::kData, "{} has identity {:.16}, the target that was merged had {:.16}: {} is damaged",
           published.string(), found, wanted, dir.string());
  report.say(fmt::format("{} tensors brought back, identity {:.16} as before the merge", kept.tensors().size(), found));
  return published;
}

Json plan_unmerge(const fs::path& dir, const fs::path& out) {
  return would_publish(out, bytes_of(prepare_undo(dir)->tensors));
}

}  // namespace sf::tool
