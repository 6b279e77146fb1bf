// SPDX-License-Identifier: Apache-2.0
// A run's checkpoints: RUN/step-N, usable as a draft and as the place to continue from, by any world size.
#pragma once
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/shape.h"
#include "ckpt/checkpoint.h"
#include "comm/group.h"
#include "engine/engine.h"
#include "train/shares.h"

namespace sf::train {

// How far a run has come. `step` counts windows, `updates` those that changed the weights.
struct Progress {
  int64_t step = 0, updates = 0;
  uint64_t cursor = 0;  // next position of the sample order
  int64_t voids = 0;    // positions that were void
  int64_t tokens = 0;
  int64_t skipped = 0, skipped_in_a_row = 0;  // steps with a non-finite gradient

  friend bool operator==(const Progress&, const Progress&) = default;
};

struct CheckpointOptions {
  std::filesystem::path run_dir;
  Json model_config;                                         // config.json of what is trained
  std::vector<NamedTensor> buffers;                          // stored as they are (t2d, d2t)
  std::vector<std::filesystem::path> side_files;             // copied as they are (tokenizer.json, ...)
  std::vector<arch::Alias> aliases;                          // further names of stored parameters
  std::vector<std::string> also_frozen;                      // frozen parameters that belong into the files
  Json contract, config, numerics;                           // for the manifest
  std::map<std::string, ckpt::BufferRecord> buffer_records;  // of all of the model's
  Json extra;         // further members of the manifest's `extra` (the draft's target), or null
  bool bf16 = false;  // weights hold bf16 numbers alone, and are stored as such
  uint64_t seed = 0;
  int64_t keep = 0;         // newest checkpoints kept; 0: all
  std::string best;         // "loss" or "acc": the metric by which RUN/best names one, which stays; empty: none
  double deadline_s = 120;  // of a wait for another rank, over the time that a disk takes for its bytes
};

// When a save returns: once this rank's part is copied, or once everything is on disk.
enum class Saved { kCopied, kPublished };

class Checkpoints {
 public:
  explicit Checkpoints(CheckpointOptions options);
  ~Checkpoints();  // what is being written is written to its end
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // A window's metrics; a checkpoint's score is the mean of `best` over the windows since the one before it.
  void note(std::span<const std::pair<std::string, double>> metrics);
  // Every rank calls it, with one RUN for all. Each writes what it owns into RUN/step-N (weights in fp32 under their
  // Hugging Face names and the buffers in model.safetensors, moments in optimizer.safetensors); rank 0 reads all of it
  // back, publishes it and moves RUN/latest. A kill at any instant leaves the old checkpoint or the new one. If one
  // rank's writing fails, every rank throws its error: with kCopied when it next saves, for a thread of each rank
  // writes from a copy while steps go on, one checkpoint at a time. A step-N left by a run that was continued from
  // before N is replaced. If this step was the last one saved, or loaded from RUN, only RUN/latest is made to name it.
  std::filesystem::path save(engine::Engine& engine, const Progress& progress, Saved until = Saved::kPublished);
  // Fills trainable parameters and moments of this rank; frozen parameters other than `also_frozen` are the caller's.
  // kData if a tensor is missing or has another shape.
  Progress load(engine::Engine& engine, const ckpt::Checkpoint& from);

  // The last one known to be published, or loaded; empty before.
  const std::filesystem::path& last() const { return last_; }
  // Whether RUN/step-N is that one.
  bool holds(int64_t step) const { return step == last_step_; }

 private:
  // What a checkpoint says of its run.
  struct Record {
    Progress progress;
    std::optional<double> score;
    std::string name() const { return "step-" + std::to_string(progress.step); }
  };
  Shares shares(engine::Engine& engine);
  void write(const Shares& shares, const Record& record);
  void reserve(ckpt::Publisher& publisher, const Shares& shares) const;
  void publish(ckpt::Publisher& publisher, const ckpt::Parts& parts, const Record& record) const;
  void name_best(const std::string& name, double score) const;
  void rotate(int64_t newest) const;
  void settle();
  CheckpointOptions options_;
  std::filesystem::path last_;
  double noted_ = 0;  // sum of the metric over `windows_`
  int64_t windows_ = 0;
  int64_t last_step_ = -1, writing_step_ = -1;
  std::vector<NamedTensor> fixed_;        // buffers and `also_frozen`, whole, on rank 0
  Copy copy_;                             // of what is being written; kept for the next
  std::unique_ptr<comm::Group> writers_;  // of the writing threads, once there is one; ends after writer_
  std::exception_ptr error_;              // of the writer; read once it is joined
  std::thread writer_;
};

}  // namespace sf::train
