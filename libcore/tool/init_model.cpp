// SPDX-License-Identifier: Apache-2.0
#include "tool/init_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "ckpt/buffers.h"
#include "ckpt/gguf.h"
#include "tool/memory_used.h"
#include "tool/model_source.h"
#include "tool/names.h"
#include "tool/non_finite.h"
#include "tool/verl_files.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

ModelSource open_source(const InitModelOptions& options) {
  const fs::path& source = options.source;
  std::error_code ignored;
  SF_CHECK(fs::exists(source, ignored), Exit::kNoInput, "{}: no such file or directory", source.string());
  if (options.dtype)
    SF_CHECK(*options.dtype == Dtype::kF32 || *options.dtype == Dtype::kF16 || *options.dtype == Dtype::kBF16,
             Exit::kUsage, "a model is stored as F32, F16 or BF16, not {}", name_of(*options.dtype));
  if (fs::is_directory(source, ignored)) return source_from_directory(source, options.dtype, options.tied_from);
  SF_CHECK(ckpt::GgufFile::is_gguf(source), Exit::kData,
           "{} is neither a GGUF file nor a directory; for safetensors give the directory that holds config.json",
           source.string());
  SF_CHECK(options.tied_from.empty(), Exit::kUsage,
           "--tied-from {}: a GGUF file stores one tensor of two that are tied; leave it out", options.tied_from);
  return source_from_gguf(source, options.dtype);
}

// Between one bounce buffer read, the same converted, the values of a dequantised one, and the read-back; the rest is
// what the allocator keeps and the names of the tensors.
uint64_t most_memory(const ModelSource& source) {
  return 4 * ckpt::kBounceBytes + (uint64_t{4} << 20) + source.tensors.size() * 4096;
}

void report_cost(const ModelSource& source, uint64_t peak, const Reporter& report) {
  report.say(
      fmt::format("read {} bytes of tensors, predicted {}; peak memory {:.1f} MiB above the start's, predicted at "
                  "most {:.1f}",
                  *source.bytes_read, source.bytes_to_read, static_cast<double>(peak) / (1 << 20),
                  static_cast<double>(most_memory(source)) / (1 << 20)));
}

// An even share of all tensors' bytes for each of the readers; the manifest is world-size free.
uint64_t file_bytes(const ModelSource& source, const InitModelOptions& options) {
  if (options.ranks > 0) {
    auto ranks = static_cast<uint64_t>(options.ranks);
    return std::max<uint64_t>(1, (bytes_of(source.tensors) + ranks - 1) / ranks);
  }
  return options.shard_bytes > 0 ? options.shard_bytes : ckpt::Publisher::kShardBytes;
}

// What the files would hold, by what they are made of: a source that was written to since is another job.
std::string job_of(const ModelSource& source, const InitModelOptions& options) {
  std::string text = fmt::format("{}\n{}\n{}\n", fs::absolute(options.source).lexically_normal().string(),
                                 file_bytes(source, options), source.config.dump());
  for (const ckpt::TensorSource& tensor : source.tensors)
    text += fmt::format("{} {} {}\n", tensor.name, name_of(tensor.dtype), to_string(tensor.shape));
  std::error_code ignored;
  auto add = [&](const fs::path& file) {
    text += fmt::format("{} {} {}\n", file.filename().string(), fs::file_size(file, ignored),
                        fs::last_write_time(file, ignored).time_since_epoch().count());
  };
  std::vector<fs::path> files;
  if (!fs::is_directory(options.source, ignored)) files = {options.source};
  for (const auto& entry : fs::directory_iterator(verl_shards_in(options.source).value_or(options.source), ignored))
    if (entry.is_regular_file(ignored)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) add(file);
  return sha256_hex(text);
}

ckpt::Manifest manifest_of(const ModelSource& source) {
  ckpt::Manifest manifest;
  manifest.kind = "target";
  manifest.aliases = source.spec.aliases;
  manifest.buffers = ckpt::buffer_records(source.spec);
  manifest.extra.set("source", source.provenance);
  return manifest;
}

}  // namespace

uint64_t bytes_of(const std::vector<ckpt::TensorSource>& tensors) {
  uint64_t total = 0;
  for (const ckpt::TensorSource& tensor : tensors) total += tensor.bytes();
  return total;
}

Json would_publish(const fs::path& out, uint64_t bytes) {
  return Json::object().set("would publish", out.string()).set("bytes", bytes);
}

void report_writing(std::vector<ckpt::TensorSource>& tensors, const Reporter& report) {
  auto done = std::make_shared<uint64_t>(0);
  uint64_t total = bytes_of(tensors);
  report.at("write", 0, total);
  for (ckpt::TensorSource& tensor : tensors) {
    tensor.write = [write = std::move(tensor.write), &report, done, total](const ckpt::TensorSource::Sink& sink) {
      write([&](const ckpt::Piece& piece) {
        sink(piece);
        report.at("write", *done += piece.bytes.size(), total);
      });
    };
  }
}

void judge_template(const std::optional<std::string>& fault, ModelSource& source) {
  constexpr const char* kRefused = "sf-init draft, sf-capture, sf-eval and sf-train sft will refuse this model";
  if (!fault)
    source.notes.push_back(fmt::format("the source holds no chat template: {} until it has one", kRefused));
  else if (!fault->empty())
    source.warnings.push_back(fmt::format("chat template: {}; {}", *fault, kRefused));
}

void note_assumed(const std::vector<std::string>& assumed, ModelSource& source) {
  if (assumed.empty()) return;
  source.notes.push_back(fmt::format("not stated by the source, taken from the {} family's own rules: {}",
                                     source.decoder.family, fmt::join(assumed, ", ")));
}

fs::path init_model(const InitModelOptions& options) {
  ModelSource source = open_source(options);
  for (const std::string& note : source.notes) options.report.say(note);
  PeakMemory peak;
  for (const std::string& warning : source.warnings) options.report.warn(warning);
  report_writing(source.tensors, options.report);
  ckpt::Publisher publisher(options.out, {job_of(source, options), options.resume});
  if (publisher.kept() > 0)
    options.report.say(fmt::format("{} files that a killed process had finished are kept", publisher.kept()));
  source.write_files(publisher.dir());
  NonFinite bad;
  bad.watch(source.tensors, options.strict);
  fs::path published =
      publisher.commit(source.tensors, source.config, manifest_of(source), file_bytes(source, options));
  bad.warn(options.report);
  report_cost(source, peak.bytes(), options.report);
  return published;
}

Json plan_model(const InitModelOptions& options) {
  ModelSource source = open_source(options);
  std::map<std::string, int64_t> dtypes;
  for (const ckpt::TensorSource& tensor : source.tensors) ++dtypes[std::string(name_of(tensor.dtype))];
  Json stored = Json::object(), aliases = Json::object(), recompute = Json::array(), notes = Json::array();
  for (const auto& [name, count] : dtypes) stored.set(name, count);
  for (const arch::Alias& alias : source.spec.aliases) aliases.set(alias.name, alias.of);
  for (const arch::Buffer& buffer : source.spec.buffers)
    if (!buffer.stored) recompute.push(buffer.name);
  for (const auto* list : {&source.notes, &source.warnings})
    for (const std::string& note : *list) notes.push(note);
  Json plan = Json::object();
  plan.set("source", options.source.string()).set("format", source.format).set("out", options.out.string());
  plan.set("family", source.spec.family).set("parameters", source.spec.parameter_count());
  plan.set("bytes_to_read", source.bytes_to_read).set("memory", most_memory(source));
  plan.set("tensors", stored)
      .set("bytes", bytes_of(source.tensors))
      .set("aliases", aliases)
      .set("recompute", recompute);
  return plan.set("notes", notes);
}

}  // namespace sf::tool
