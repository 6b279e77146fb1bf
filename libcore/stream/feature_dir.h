// SPDX-License-Identifier: Apache-2.0
// A directory of features: the samples of a stream in files, one format on two carriers.
//
//   contract.json        kind "features": contract with digest, counts, names of the shards
//   index.bin            where each row lies (32 bytes a row, sorted), behind a header with XXH3
//   rows-W-NNNNN.frames  the frames of the wire, one record a row; W: the writer, one a rank
//
// It is written beside its name, in DIR.partial, and renamed when it is complete: a reader sees all of it or nothing.
// A writer that is started again continues DIR.partial; rows already there are not computed again.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/file.h"
#include "stream/source.h"

namespace sf::stream {

inline constexpr size_t kShardBytes = size_t{256} << 20;  // a writer begins a new shard behind this size

// The contract of a published directory; nullopt if there is none by that name. kData: it is there but is not one.
std::optional<Contract> published_contract(const std::filesystem::path& dir);
// For plans, touching nothing: kProtocol naming the field if DIR.partial was begun with another contract.
void check_features_begun(const std::filesystem::path& dir, const Contract& contract);

// Of a partial directory, while a writer opens it: whether others may be writing there. Where none does, writer 0 looks
// over what all of them left, and each further writer opens it afterwards.
enum class Others { kWrite, kDone };

class FeatureWriter {
 public:
  // Starts or continues DIR.partial. Writer 0 owns it exclusively (kCantCreate naming the owner); writers 1.. are the
  // other ranks of the same run. kCantCreate: DIR exists; kProtocol naming the field: DIR.partial has another contract.
  FeatureWriter(const std::filesystem::path& dir, const Contract& contract, int writer, std::string_view who,
                Others others = Others::kWrite);
  FeatureWriter(FeatureWriter&&) = default;

  bool has(uint64_t row) const { return rows_.contains(row); }
  uint64_t rows() const { return rows_.size(); }
  void add(const Sample& sample);  // a row that is there already is left as it is; a failed write leaves no trace
  void close();                    // everything is on disk afterwards
  // By writer 0, once every writer has closed: index, contract, rename. Returns the directory's path.
  std::filesystem::path publish();

 private:
  void open_shard();

  std::filesystem::path dir_, partial_;
  Contract contract_;
  int writer_;
  std::optional<DirLock> lock_;
  std::set<uint64_t> rows_;
  int next_shard_ = 0;
  UniqueFd fd_;
  std::filesystem::path shard_;
  uint64_t offset_ = 0;
};

class DirSource : public Source {
 public:
  // kNoInput: no such directory; kData: damaged; kProtocol: the contract differs from what is wanted (unmet_by).
  static std::unique_ptr<DirSource> open(const std::filesystem::path& dir, const Contract& wanted);
  ~DirSource() override;

  const Contract& contract() const override;
  void want(std::span<const uint64_t> positions) override;    // tells the system to read ahead
  Sample get(uint64_t position, Deadline deadline) override;  // kData naming file and byte
  void finish() override {}

  uint64_t present() const;             // rows in the directory
  Sample row_at(uint64_t index) const;  // the index-th of them; its position is the one it was written at

 private:
  struct Impl;
  explicit DirSource(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// --tee: passes samples on and keeps them in a directory.
class TeeSource : public Source {
 public:
  TeeSource(std::unique_ptr<Source> inner, FeatureWriter writer)
      : inner_(std::move(inner)), writer_(std::move(writer)) {}
  const Contract& contract() const override { return inner_->contract(); }
  void want(std::span<const uint64_t> positions) override { inner_->want(positions); }
  Sample get(uint64_t position, Deadline deadline) override;
  void trained(uint64_t end) override { inner_->trained(end); }
  void finish() override;  // of the inner source; then closes the writer
  FeatureWriter& writer() { return writer_; }
  const Source& inner() const { return *inner_; }

 private:
  std::unique_ptr<Source> inner_;
  FeatureWriter writer_;
};

struct FeatureCounts {
  uint64_t rows = 0, voids = 0, bytes = 0;
};
// Reads every record and checks every hash. `sink`, if given, gets every sample, by row. kData at the first fault.
FeatureCounts inspect_features(const std::filesystem::path& dir, const std::function<void(const Sample&)>& sink = {});

}  // namespace sf::stream
