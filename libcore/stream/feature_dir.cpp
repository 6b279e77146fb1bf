// SPDX-License-Identifier: Apache-2.0
#include "stream/feature_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/mmap.h"
#include "base/new_dirs.h"
#include "stream/frame.h"

namespace sf::stream {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kIndexMagic = 0x3158444e49465353;  // "SSFINDX1"
constexpr size_t kMaxContractFile = size_t{4} << 20;
constexpr size_t kMaxShards = 65536;
constexpr size_t kMaxRecordBytes =
    kMaxSampleBytes + (kMaxSampleBytes / kChunkBytes + kMaxTensors + 2) * kFrameHeaderBytes + kMaxTextBytes;

struct Entry {
  uint64_t row = 0;
  uint32_t shard = 0, is_void = 0;
  uint64_t offset = 0, bytes = 0;
};
static_assert(sizeof(Entry) == 32);
struct IndexHeader {
  uint64_t magic = kIndexMagic, version = 1, count = 0, hash = 0;
};
static_assert(sizeof(IndexHeader) == 32);

fs::path partial_of(const fs::path& dir) {
  fs::path plain = dir.has_filename() ? dir : dir.parent_path();
  return plain.string() + ".partial";
}

// Names of the shards in a folder, sorted: "rows-W-NNNNN.frames".
std::vector<std::string> shards_in(const fs::path& dir) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(dir)) {
    std::string name = item.path().filename().string();
    if (name.starts_with("rows-") && name.ends_with(".frames")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The whole records at the front of a shard. What follows them was torn by a kill: `good` is where it begins.
std::vector<Entry> scan_shard(const fs::path& path, uint32_t shard, bool check_payloads, uint64_t& good) {
  MappedFile file = MappedFile::open(path);
  std::vector<Entry> entries;
  good = 0;
  while (good < file.bytes().size()) {
    try {
      RecordInfo info = walk_record(file.bytes().subspan(good), check_payloads);
      entries.push_back({info.row, shard, info.is_void, good, info.bytes});
      good += info.bytes;
    } catch (const Error& error) {
      if (error.code() != Exit::kData) throw;
      break;
    }
  }
  return entries;
}

Json contract_file(const Contract& contract, const std::vector<Entry>& entries,
                   const std::vector<std::string>& shards) {
  uint64_t voids = 0;
  for (const Entry& entry : entries) voids += entry.is_void;
  Json names = Json::array();
  for (const std::string& shard : shards) names.push(shard);
  Json json = Json::object();
  json.set("kind", "features").set("v", 1).set("wire", kWireVersion);
  json.set("contract", contract.to_json()).set("contract_digest", contract.digest());
  json.set("rows", contract.rows).set("present", static_cast<uint64_t>(entries.size())).set("void", voids);
  json.set("shards", std::move(names));
  return json;
}

struct ContractFile {
  Contract contract;
  std::vector<std::string> shards;
};

ContractFile read_contract(const fs::path& path) {
  Json json = Json::parse(read_file(path, kMaxContractFile), path.string());
  try {
    SF_CHECK(json.is_object() && json.get_string("kind", "") == "features", Exit::kData, "kind \"features\" wanted");
    int64_t version = json.at("v").as_int(), wire = json.at("wire").as_int();
    SF_CHECK(version == 1 && wire == kWireVersion, Exit::kProtocol, "version: wanted 1 (wire {}), found {} (wire {})",
             kWireVersion, version, wire);
    ContractFile file{Contract::from_json(json.at("contract")), {}};
    SF_CHECK(json.at("contract_digest").as_string() == file.contract.digest(), Exit::kData,
             "contract_digest does not match the contract");
    const auto& names = json.at("shards").as_array();
    SF_CHECK(names.size() <= kMaxShards, Exit::kData, "{} shards, at most {} allowed", names.size(), kMaxShards);
    for (const Json& name : names) {
      SF_CHECK(name.as_string().size() < 64 && name.as_string().find('/') == std::string::npos, Exit::kData,
               "shard name {} is not one", name.as_string().substr(0, 64));
      file.shards.push_back(name.as_string());
    }
    return file;
  } catch (Error& error) {
    error.add_context(path.string());
    throw;
  }
}

std::vector<Entry> read_index(const fs::path& path, const ContractFile& file) {
  MappedFile mapped = MappedFile::open(path);
  auto bytes = mapped.bytes();
  IndexHeader header;
  SF_CHECK(bytes.size() >= sizeof header, Exit::kData, "{}: {} bytes, at least {} wanted", path.string(), bytes.size(),
           sizeof header);
  std::memcpy(&header, bytes.data(), sizeof header);
  SF_CHECK(header.magic == kIndexMagic && header.version == 1, Exit::kData, "{} is not an index of features",
           path.string());
  auto body = bytes.subspan(sizeof header);
  SF_CHECK(header.count <= file.contract.rows && body.size() == header.count * sizeof(Entry), Exit::kData,
           "{}: {} rows in {} bytes, {} rows promised", path.string(), header.count, body.size(), file.contract.rows);
  SF_CHECK(xxh3_64(body) == header.hash, Exit::kData, "{}: damaged (XXH3 differs)", path.string());
  std::vector<Entry> entries(header.count);
  if (!body.empty()) std::memcpy(entries.data(), body.data(), body.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    bool ordered = i == 0 || entries[i - 1].row < entry.row;
    SF_CHECK(
        ordered && entry.row < file.contract.rows && entry.shard < file.shards.size() && entry.bytes <= kMaxRecordBytes,
        Exit::kData, "{}: entry {} (row {}) is out of range or order", path.string(), i, entry.row);
  }
  return entries;
}

void write_index(const fs::path& path, const std::vector<Entry>& entries) {
  auto body = std::as_bytes(std::span(entries));
  IndexHeader header;
  header.count = entries.size();
  header.hash = xxh3_64(body);
  std::vector<std::byte> bytes(sizeof header + body.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::copy(body.begin(), body.end(), bytes.begin() + sizeof header);
  write_atomic(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void make_dirs(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  SF_CHECK(!error, exit_of_errno(error.value(), Exit::kCantCreate), "cannot create {}: {}", dir.string(),
           error.message());
}

// The contract of rows to come, or the comparison with the one of rows that are there.
void begin_contract(const Contract& contract, const fs::path& partial, bool first) {
  fs::path file = partial / "contract.json";
  if (fs::exists(file)) {
    auto difference = contract.difference(read_contract(file).contract);
    SF_CHECK(!difference, Exit::kProtocol, "{} was begun with another contract: {}; remove it or choose another name",
             partial.string(), difference.value_or(""));
  } else if (first) {
    write_atomic(file, contract_file(contract, {}, {}).dump(2) + "\n");
  }
}

}  // namespace

std::optional<Contract> published_contract(const fs::path& dir) {
  if (!fs::exists(dir)) return std::nullopt;
  return read_contract(dir / "contract.json").contract;
}

void check_features_begun(const fs::path& dir, const Contract& contract) {
  begin_contract(contract, partial_of(dir), false);
}

FeatureWriter::FeatureWriter(const fs::path& dir, const Contract& contract, int writer, std::string_view who,
                             Others others)
    : dir_(dir), partial_(partial_of(dir)), contract_(contract), writer_(writer) {
  SF_CHECK(!fs::exists(dir_), Exit::kCantCreate, "{} exists already; choose another name or remove it", dir_.string());
  // Only writer 0 takes back what it made: to another's eyes the directory is empty until writer 0 was there.
  NewDirs made;
  if (writer_ == 0)
    made = NewDirs(partial_);
  else
    make_dirs(partial_);
  if (writer_ == 0) lock_ = DirLock::acquire(partial_, who);
  try {
    begin_contract(contract_, partial_, writer_ == 0);
  } catch (...) {
    lock_.reset();
    throw;
  }
  std::string own = fmt::format("rows-{}-", writer_);
  std::vector<std::string> names = shards_in(partial_);
  for (size_t i = 0; i < names.size(); ++i) {
    const bool mine = names[i].starts_with(own), checks = others == Others::kDone ? writer_ == 0 : mine;
    uint64_t good = 0;
    // Every record is hashed again: a shard that was whole when it was closed may have been damaged since.
    for (const Entry& entry : scan_shard(partial_ / names[i], 0, checks, good)) rows_.insert(entry.row);
    if (checks && !fault("stream.keep_torn_tail")) fs::resize_file(partial_ / names[i], good);
    if (mine) next_shard_ = std::max(next_shard_, std::atoi(names[i].c_str() + own.size()) + 1);
  }
}

void FeatureWriter::open_shard() {
  shard_ = partial_ / fmt::format("rows-{}-{:05}.frames", writer_, next_shard_++);
  fd_ = create_file(shard_);
  offset_ = 0;
}

void FeatureWriter::add(const Sample& sample) {
  if (has(sample.row)) return;
  SF_CHECK(sample.row < contract_.rows, Exit::kData, "row {} of a data set of {} rows", sample.row, contract_.rows);
  if (!fd_.valid()) open_shard();
  std::string record = encode_record(sample);
  try {
    write_all(fd_.get(), record, shard_);
  } catch (...) {
    // The next record, if there is one, must follow the last whole one.
    if (ftruncate(fd_.get(), static_cast<off_t>(offset_)) == 0) lseek(fd_.get(), static_cast<off_t>(offset_), SEEK_SET);
    throw;
  }
  offset_ += record.size();
  rows_.insert(sample.row);
  if (offset_ >= kShardBytes) close();
}

void FeatureWriter::close() {
  if (!fd_.valid()) return;
  sync_fd(fd_.get(), shard_);
  fd_.close(shard_.string());
}

fs::path FeatureWriter::publish() {
  SF_ASSERT(writer_ == 0);
  close();
  std::vector<std::string> names = shards_in(partial_);
  std::map<uint64_t, Entry> by_row;  // a row that two ranks kept is equal in both: the first one counts
  for (size_t i = 0; i < names.size(); ++i) {
    uint64_t good = 0;
    for (const Entry& entry : scan_shard(partial_ / names[i], static_cast<uint32_t>(i), false, good)) {
      by_row.emplace(entry.row, entry);
    }
  }
  std::vector<Entry> entries;
  for (const auto& [row, entry] : by_row) entries.push_back(entry);
  write_index(partial_ / "index.bin", entries);
  write_atomic(partial_ / "contract.json", contract_file(contract_, entries, names).dump(2) + "\n");
  lock_.reset();
  SF_CHECK(::rename(partial_.c_str(), dir_.c_str()) == 0, exit_of_errno(errno, Exit::kCantCreate),
           "cannot rename {} to {}: {}", partial_.string(), dir_.string(), errno_text(errno));
  sync_dir(dir_.has_parent_path() ? dir_.parent_path() : fs::path("."));
  return dir_;
}

struct DirSource::Impl {
  fs::path dir;
  ContractFile file;
  std::vector<Entry> entries;
  std::mutex mutex;  // of the descriptors, opened when first needed
  std::map<uint32_t, UniqueFd> shards;

  const Entry* find(uint64_t row) const {
    auto at =
        std::lower_bound(entries.begin(), entries.end(), row, [](const Entry& e, uint64_t r) { return e.row < r; });
    return at != entries.end() && at->row == row ? &*at : nullptr;
  }
  int fd_of(uint32_t shard) {
    std::lock_guard lock(mutex);
    UniqueFd& fd = shards[shard];
    if (!fd.valid()) fd = open_read(dir / file.shards[shard]);
    return fd.get();
  }
  Sample read(const Entry& entry) {
    fs::path path = dir / file.shards[entry.shard];
    int fd = fd_of(entry.shard);
    struct stat info {};
    SF_CHECK(fstat(fd, &info) == 0, Exit::kIo, "cannot stat {}: {}", path.string(), errno_text(errno));
    auto size = static_cast<uint64_t>(info.st_size);
    SF_CHECK(entry.bytes <= size && entry.offset <= size - entry.bytes, Exit::kData,
             "{}: row {} lies at bytes {} to {}, the file has {}: it is truncated", path.string(), entry.row,
             entry.offset, entry.offset + entry.bytes, size);
    std::vector<std::byte> record(entry.bytes);
    pread_exact(fd, record, entry.offset, path);
    try {
      size_t used = 0;
      Sample sample = decode_record(record, used);
      SF_CHECK(used == record.size() && sample.row == entry.row, Exit::kData,
               "wanted row {} in {} bytes, found row {} in {}", entry.row, record.size(), sample.row, used);
      return sample;
    } catch (Error& error) {
      error.add_context(fmt::format("{}: record at byte {}", path.string(), entry.offset));
      throw;
    }
  }
};

DirSource::DirSource(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DirSource::~DirSource() = default;
const Contract& DirSource::contract() const {
  return impl_->file.contract;
}
uint64_t DirSource::present() const {
  return impl_->entries.size();
}
Sample DirSource::row_at(uint64_t index) const {
  return impl_->read(impl_->entries.at(index));
}

std::unique_ptr<DirSource> DirSource::open(const fs::path& dir, const Contract& wanted) {
  SF_CHECK(fs::is_directory(dir), Exit::kNoInput, "{} is not a directory of features{}", dir.string(),
           fs::exists(partial_of(dir))
               ? fmt::format("; {} is unfinished: run the same sf-capture again", partial_of(dir).string())
               : "");
  auto impl = std::make_unique<Impl>();
  impl->dir = dir;
  impl->file = read_contract(dir / "contract.json");
  auto unmet = fault("stream.wrong_contract") ? std::nullopt : wanted.unmet_by(impl->file.contract);
  SF_CHECK(!unmet, Exit::kProtocol, "contract of {} differs in {}", dir.string(), unmet.value_or(""));
  impl->entries = read_index(dir / "index.bin", impl->file);
  return std::unique_ptr<DirSource>(new DirSource(std::move(impl)));
}

void DirSource::want(std::span<const uint64_t> positions) {
  for (uint64_t position : positions) {
    const Entry* entry = impl_->find(place_of(position, contract().rows, contract().order_seed).row);
    if (!entry) continue;
    // Advice only: what it cannot do, get() does.
    (void)posix_fadvise(impl_->fd_of(entry->shard), static_cast<off_t>(entry->offset), static_cast<off_t>(entry->bytes),
                        POSIX_FADV_WILLNEED);
  }
}

Sample DirSource::get(uint64_t position, Deadline) {
  uint64_t row = place_of(position, contract().rows, contract().order_seed).row;
  const Entry* entry = impl_->find(row);
  SF_CHECK(entry, Exit::kData, "position {} is row {}, which {} does not hold ({} of {} rows are there)", position, row,
           impl_->dir.string(), impl_->entries.size(), contract().rows);
  Sample sample = impl_->read(*entry);
  sample.position = position;
  return sample;
}

Sample TeeSource::get(uint64_t position, Deadline deadline) {
  Sample sample = inner_->get(position, deadline);
  writer_.add(sample);
  return sample;
}

void TeeSource::finish() {
  inner_->finish();
  writer_.close();
}

FeatureCounts inspect_features(const fs::path& dir, const std::function<void(const Sample&)>& sink) {
  auto source = DirSource::open(dir, Contract{});
  FeatureCounts counts;
  for (uint64_t i = 0; i < source->present(); ++i) {
    Sample sample = source->row_at(i);
    ++counts.rows;
    counts.voids += sample.void_reason.has_value();
    counts.bytes += sample.bytes();
    if (sink) sink(sample);
  }
  return counts;
}

}  // namespace sf::stream
