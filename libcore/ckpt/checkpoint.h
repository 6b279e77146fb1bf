// SPDX-License-Identifier: Apache-2.0
// A checkpoint directory: safetensors shards, config.json, manifest.json written last. World-size free: any rank reads
// any interval. Also opens plain Hugging Face directories (index or single file, no manifest). An adapter's has PEFT's
// names of files, adapter_config.json and adapter_model.safetensors, so that PEFT reads it as it is.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arch/model_spec.h"
#include "base/file.h"
#include "base/json.h"
#include "base/new_dirs.h"
#include "base/shape.h"
#include "ckpt/safetensors.h"

namespace sf::ckpt {

// How a buffer comes back: its bytes lie in the files, or it is recomputed, to values of this digest.
struct BufferRecord {
  Dtype dtype = Dtype::kF32;
  Shape shape;
  bool stored = false;
  std::string digest;  // xxh3, 16 hex digits; empty: stored, or not known
};

// What manifest.json holds. Unknown keys are kept in `extra` and written back.
struct Manifest {
  std::string kind;                              // "target", "draft", "adapter", "train" (with optimizer state)
  std::vector<arch::Alias> aliases;              // each tied storage recorded once
  std::map<std::string, BufferRecord> buffers;   // all of the model's
  std::map<std::string, std::string> residency;  // parameter -> "replicate", "host", ...
  std::map<std::string, std::string> digests;    // tensor or file name -> xxh3 of its bytes (16 hex digits)
  Json contract;                                 // null, or what the training stream promised
  Json config;                                   // resolved configuration of the run (null for targets)
  Json numerics;                                 // threads, instruction set, library versions
  int64_t step = 0;                              // optimizer steps done
  int64_t cursor = 0;                            // next position of the sample order
  uint64_t seed = 0;
  std::string identity;  // SHA-256 over (name, dtype, shape, digest) of all tensors and config.json
  Json extra;            // an object, or null
};

Json manifest_to_json(const Manifest& manifest);
Manifest manifest_from_json(const Json& json);  // kData naming the key

class Checkpoint {
 public:
  // kNoInput if absent, kData if incomplete (no manifest and no safetensors), kConfig if config.json is missing.
  static Checkpoint open(const std::filesystem::path& dir);
  const std::filesystem::path& dir() const { return dir_; }
  const Json& config() const { return config_; }
  const Manifest& manifest() const { return manifest_; }  // empty kind for a plain Hugging Face directory
  bool has_manifest() const { return has_manifest_; }
  // The manifest's; computed from all bytes for a plain Hugging Face directory (slow: reads everything).
  std::string identity() const;

  // Names follow aliases: "lm_head.weight" of a tied model finds the embedding's bytes.
  bool contains(std::string_view name) const;
  TensorInfo info(std::string_view name) const;  // throws kData naming the tensor and the nearest names
  TensorView view(std::string_view name) const;  // zero copy, lives as long as this object
  // Elements [lo, hi) of a tensor, converted to `as`, into `to` (its size must be (hi - lo) * size_of(as)).
  // What was read does not stay resident. Of a whole tensor the bytes are compared with the manifest's digest as they
  // pass: kData naming the tensor.
  void read(std::string_view name, int64_t lo, int64_t hi, Dtype as, std::span<std::byte> to) const;
  std::vector<std::string> names() const;  // stored tensors, sorted; aliases not included
  // The tensor stored under this very name, whatever an alias says: a tied head that is stored all the same. kData if
  // there is none.
  TensorView stored(std::string_view name) const;
  // Where the bytes lie: of the tensor that `name` means, and of the one stored under this very name.
  struct Place {
    const SafetensorsFile* file;
    TensorInfo info;
  };
  Place place(std::string_view name) const;
  Place stored_place(std::string_view name) const;
  const std::vector<SafetensorsFile>& files() const { return files_; }
  // Tied names in force: the manifest's, or derived from tie_word_embeddings for a plain directory.
  const std::vector<arch::Alias>& aliases() const { return aliases_; }
  // Recomputes every digest, kBounceBytes at a time; returns the tensors and files whose bytes differ from the
  // manifest, are missing from it or from the directory, and "identity" if the whole does not add up (empty: verified).
  // Empty too without a manifest.
  std::vector<std::string> verify() const;

 private:
  std::filesystem::path dir_;
  Json config_;
  Manifest manifest_;
  bool has_manifest_ = false;
  std::vector<SafetensorsFile> files_;
  std::vector<arch::Alias> aliases_;
  std::map<std::string, size_t, std::less<>> stored_;                         // stored name -> file
  std::map<std::string, std::pair<size_t, std::string>, std::less<>> where_;  // any name -> (file, stored name)

  void open_files();
  void open_shards(const std::vector<std::string>& names);
  void open_indexed(const std::filesystem::path& index);
  void apply_aliases();
  const std::pair<size_t, std::string>& locate(std::string_view name) const;
};

// The first kListed of them, and how many more.
std::string listed(std::span<const std::string> names);
inline constexpr size_t kListed = 20;

// A tensor that is made while it is written, so that a model larger than memory can be published.
struct TensorSource {
  using Sink = std::function<void(const Piece&)>;
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;
  std::function<void(const Sink&)> write;  // hands over all bytes, in order, in pieces of any size; called once

  uint64_t bytes() const { return static_cast<uint64_t>(numel(shape)) * size_of(dtype); }
};

// What one of several processes wrote of a tensor: bytes [begin, end), and their xxh3. By tensor.
struct Part {
  uint64_t begin = 0, end = 0, digest = 0;
  int rank = 0;
};
using Parts = std::map<std::string, std::vector<Part>, std::less<>>;

// Publishes a directory: everything is written into a temporary sibling, synced, verified by reading back, then
// renamed. A kill at any instant leaves the old directory or the new one. Destruction without commit() removes the
// sibling; the sibling of a killed process is removed by the next Publisher of the same name on that host.
class Publisher {
 public:
  // What is written, for a later process to go on with: `digest` names it, and with `resume` the files of tensors that
  // a killed process of the same job had finished are kept, and not written again.
  struct Job {
    std::string digest;
    bool resume = false;
  };
  // Parents of `final_dir` that are missing are made, and go again if nothing comes of it. kCantCreate if it exists or
  // cannot be made.
  explicit Publisher(std::filesystem::path final_dir) : Publisher(std::move(final_dir), Job()) {}
  Publisher(std::filesystem::path final_dir, Job job);
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;
  const std::filesystem::path& dir() const { return temporary_; }  // write files here
  // Writes model.safetensors (or shards of at most `shard_bytes`, with index.json) from views, then config.json,
  // then manifest.json (digests of tensors and of the files found in dir(), and the identity, are filled in), verifies,
  // renames. Returns the final path.
  std::filesystem::path commit(const std::vector<std::pair<std::string, TensorView>>& tensors, const Json& config,
                               Manifest manifest, uint64_t shard_bytes = kShardBytes);
  std::filesystem::path commit(const std::vector<TensorSource>& tensors, const Json& config, Manifest manifest,
                               uint64_t shard_bytes = kShardBytes);
  // The same by several processes. One reserves the files of `tensors` (name, type, shape) and writes config.json; each
  // then fills its parts where Checkpoint::open(dir()) finds the tensors, and syncs; the first reads all of it back
  // once (other safetensors files in dir() too) and publishes. kIo naming tensor and rank where a part is not what was
  // written; kSoftware where nobody wrote.
  void reserve(const std::vector<TensorInfo>& tensors, const Json& config, uint64_t shard_bytes = kShardBytes);
  std::filesystem::path commit_reserved(const Parts& parts, Manifest manifest);
  static constexpr uint64_t kShardBytes = uint64_t{5} << 30;
  // The same without a manifest: a Hugging Face directory for others to read. `metadata` goes into its safetensors
  // files; `prove` looks at the directory before it is published, and throws.
  std::filesystem::path commit_plain(const std::vector<TensorSource>& tensors, const Json& config,
                                     const std::map<std::string, std::string>& metadata,
                                     const std::function<void(const std::filesystem::path& dir)>& prove);
  size_t kept() const { return kept_.as_object().size(); }  // files of a killed process
  // Publishes what the caller wrote into dir() (other files than a checkpoint).
  std::filesystem::path commit_files();

 private:
  std::filesystem::path final_, temporary_;
  NewDirs parents_;
  Job job_;
  Json kept_ = Json::object();  // file of tensors -> their digests
  void take_over();
  void note_finished(const std::string& file, const Json& digests);
  UniqueFd lock_;  // held on the temporary directory: says that its owner lives
  bool done_ = false;
};

// Points RUN/latest (a relative symbolic link, replaced by rename) at RUN/<name>.
void point_latest(const std::filesystem::path& run_dir, const std::string& name);
// The same of RUN/best; and where it leads, nullopt if nowhere.
void point_best(const std::filesystem::path& run_dir, const std::string& name);
std::optional<std::filesystem::path> best_checkpoint(const std::filesystem::path& run_dir);
// The newest verified checkpoint of a run directory: the highest step-N that verifies, else what RUN/latest names;
// nullopt if there is none.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& run_dir);

}  // namespace sf::ckpt
