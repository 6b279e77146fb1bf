// SPDX-License-Identifier: Apache-2.0
#include "tool/reshard.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ckpt/as_published.h"
#include "tool/init_model.h"
#include "tool/model_source.h"
#include "tool/verl_files.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

// Everything that the manifest vouches for beside tensors and config.json.
void copy_others(const ckpt::Checkpoint& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from.dir())) {
    std::string name = entry.path().filename().string();
    bool known = from.manifest().digests.contains(name) && entry.is_regular_file();
    if (!known || name == "config.json" || name == "adapter_config.json" || name == "model.safetensors.index.json")
      continue;
    std::error_code error;
    fs::copy_file(entry.path(), to / name, error);
    SF_CHECK(!error, exit_of_errno(error.value(), Exit::kIo), "cannot copy {}: {}", entry.path().string(),
             error.message());
  }
}

InitModelOptions as_model(const ReshardOptions& options) {
  return {
      .source = options.checkpoint, .out = options.out, .shard_bytes = options.shard_bytes, .report = options.report};
}

// A checkpoint that may be written again; it must outlive its tensors.
ckpt::Checkpoint open_whole(const fs::path& dir) {
  ckpt::Checkpoint open = ckpt::Checkpoint::open(dir);
  SF_CHECK(open.has_manifest(), Exit::kData, "{} has no manifest: make a checkpoint of it with sf-init model first",
           dir.string());
  ckpt::check_whole(open);
  return open;
}

std::vector<ckpt::TensorSource> tensors_of(const ckpt::Checkpoint& open) {
  std::vector<ckpt::TensorSource> tensors;
  for (const std::string& name : open.names()) {
    auto [file, info] = open.stored_place(name);
    tensors.push_back({name, info.dtype, info.shape,
                       [file = file, info = info](const ckpt::TensorSource::Sink& sink) { file->stream(info, sink); }});
  }
  return tensors;
}

}  // namespace

fs::path reshard(const ReshardOptions& options) {
  if (verl_shards_in(options.checkpoint)) return init_model(as_model(options));
  ckpt::Checkpoint open = open_whole(options.checkpoint);
  std::vector<ckpt::TensorSource> tensors = tensors_of(open);
  report_writing(tensors, options.report);
  ckpt::Publisher publisher(options.out);
  copy_others(open, publisher.dir());
  fs::path published = publisher.commit(tensors, open.config(), open.manifest(), options.shard_bytes);
  ckpt::Checkpoint made = ckpt::Checkpoint::open(published);
  SF_CHECK(made.manifest().identity == open.manifest().identity, Exit::kSoftware,
           "{} has identity {:.16}, {} had {:.16}", published.string(), made.manifest().identity,
           options.checkpoint.string(), open.manifest().identity);
  options.report.say(fmt::format("{} files instead of {}, identity {:.16} as before", made.files().size(),
                                 open.files().size(), made.manifest().identity));
  return published;
}

Json plan_reshard(const ReshardOptions& options) {
  if (verl_shards_in(options.checkpoint))
    return would_publish(options.out, static_cast<uint64_t>(plan_model(as_model(options)).at("bytes").as_int()));
  return would_publish(options.out, bytes_of(tensors_of(open_whole(options.checkpoint))));
}

}  // namespace sf::tool
