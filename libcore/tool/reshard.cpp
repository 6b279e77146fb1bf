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

}  // namespace

fs::path reshard(const ReshardOptions& options) {
  if (verl_shards_in(options.checkpoint))
    return init_model({.source = options.checkpoint,
                       .out = options.out,
                       .shard_bytes = options.shard_bytes,
                       .report = options.report});
  ckpt::Checkpoint open = ckpt::Checkpoint::open(options.checkpoint);
  SF_CHECK(open.has_manifest(), Exit::kData, "{} has no manifest: make a checkpoint of it with sf-init model first",
           options.checkpoint.string());
  ckpt::check_whole(open);
  std::vector<ckpt::TensorSource> tensors;
  for (const std::string& name : open.names()) {
    auto [file, info] = open.stored_place(name);
    tensors.push_back({name, info.dtype, info.shape,
                       [file = file, info = info](const ckpt::TensorSource::Sink& sink) { file->stream(info, sink); }});
  }
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

}  // namespace sf::tool
