// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/present.h"
#include "ckpt/as_published.h"
#include "ckpt/checkpoint.h"
#include "ckpt/digest.h"
#include "ckpt/layout.h"

namespace sf::ckpt {
namespace fs = std::filesystem;
namespace {

constexpr const char* kProgress = "progress.json";  // of a job that can be continued; never published

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

std::string temporary_prefix(const fs::path& final_dir) {
  return fmt::format(".{}.tmp-", final_dir.filename().string());
}

UniqueFd open_dir(const fs::path& dir) {
  return UniqueFd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

// True if nobody can be using it: its process is gone here, and no process of another host on a shared file system
// holds the lock that a living Publisher keeps.
bool is_stale(const fs::path& temporary, std::string_view pid_text) {
  pid_t pid = 0;
  auto [end, error] = std::from_chars(pid_text.data(), pid_text.data() + pid_text.size(), pid);
  if (error != std::errc() || end != pid_text.data() + pid_text.size() || pid <= 0) return false;
  if (::kill(pid, 0) == 0 || errno != ESRCH) return false;
  UniqueFd fd = open_dir(temporary);
  return fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
}

// A living Publisher holds the lock on its sibling.
bool is_being_written(const fs::path& temporary) {
  UniqueFd fd = open_dir(temporary);
  return fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void remove_stale(const fs::path& final_dir) {
  std::string prefix = temporary_prefix(final_dir);
  std::error_code ignored;
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(parent_of(final_dir), ignored)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    std::string owner = name.substr(prefix.size());
    SF_CHECK(!is_being_written(entry.path()), Exit::kCantCreate,
             "{} is being written by process {}; wait until it ends, or choose another -o", final_dir.string(), owner);
    if (is_stale(entry.path(), owner)) stale.push_back(entry.path());
  }
  for (const fs::path& path : stale) fs::remove_all(path, ignored);
}

// Not synced: sync_tree does that for all files at once, before the rename that makes them count.
void write_file(const fs::path& path, std::string_view text) {
  UniqueFd fd = create_file(path);
  write_all(fd.get(), text, path);
  fd.close(path.string());
}

using Sources = std::vector<const TensorSource*>;

// Splits in name order, so that any two runs make the same shards. A tensor larger than the limit has its own. Within a
// shard the widest elements come first: so every tensor is aligned.
std::vector<Sources> split(const std::vector<TensorSource>& tensors, uint64_t shard_bytes) {
  Sources order;
  for (const TensorSource& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  std::vector<Sources> shards(1);
  uint64_t held = 0;
  for (const TensorSource* tensor : order) {
    if (!shards.back().empty() && held + tensor->bytes() > shard_bytes) shards.emplace_back(), held = 0;
    held += tensor->bytes();
    shards.back().push_back(tensor);
  }
  for (Sources& shard : shards)
    std::stable_sort(shard.begin(), shard.end(),
                     [](const auto* a, const auto* b) { return size_of(a->dtype) > size_of(b->dtype); });
  return shards;
}

using Digests = std::map<std::string, TensorDigest>;
using Metadata = std::map<std::string, std::string>;

std::vector<TensorInfo> declared_of(const Sources& shard) {
  std::vector<TensorInfo> declared;
  for (const TensorSource* tensor : shard) declared.push_back({tensor->name, tensor->dtype, tensor->shape, 0, 0});
  return declared;
}

// Digests are of the bytes in memory: what the read-back must find again.
void write_shard(const fs::path& path, const Sources& shard, const Metadata& metadata, Digests& digests) {
  SafetensorsWriter writer(path, declared_of(shard), metadata);
  for (const TensorSource* tensor : shard) {
    Xxh3 hash;
    uint64_t written = 0;
    tensor->write([&](const Piece& piece) {
      hash.update(piece.bytes);
      writer.append(piece);
      written += piece.bytes.size();
    });
    SF_CHECK(written == tensor->bytes(), Exit::kSoftware, "tensor \"{}\": {} bytes written, {} declared", tensor->name,
             written, tensor->bytes());
    digests[tensor->name] = {tensor->dtype, tensor->shape, hex64(hash.digest())};
  }
  writer.finish();
}

// `write(file, shard, digests)` writes one file of tensors, or knows what it holds.
using WriteShard = std::function<void(const std::string& file, const Sources& shard, Digests& digests)>;

Digests write_tensors(const fs::path& dir, const Layout& layout, const std::vector<TensorSource>& tensors,
                      uint64_t shard_bytes, const WriteShard& write) {
  Digests digests;
  std::vector<Sources> shards = split(tensors, layout.adapter ? UINT64_MAX : shard_bytes);
  if (shards.size() == 1) {
    write(layout.tensors(), shards[0], digests);
    return digests;
  }
  uint64_t total = 0;
  std::map<std::string, std::string> where;
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write(file, shards[i], digests);
    for (const TensorSource* tensor : shards[i]) where[tensor->name] = file, total += tensor->bytes();
  }
  Json::Object map;
  for (const auto& [name, file] : where) map.emplace_back(name, file);
  Json index = Json::object();
  index.set("metadata", Json::object().set("total_size", total)).set("weight_map", Json(std::move(map)));
  write_file(dir / "model.safetensors.index.json", index.dump(2) + "\n");
  return digests;
}

Json digests_json(const Sources& shard, const Digests& digests) {
  Json out = Json::object();
  for (const TensorSource* tensor : shard) out.set(tensor->name, digests.at(tensor->name).digest);
  return out;
}

void take_digests(const Sources& shard, const Json& known, Digests& digests) {
  for (const TensorSource* tensor : shard)
    digests[tensor->name] = {tensor->dtype, tensor->shape, known.get_string(tensor->name, "")};
}

// config.json is there; `whole`: digests that are known already of other files.
void write_manifest(const fs::path& dir, const Digests& tensors, std::map<std::string, std::string> whole,
                    Manifest manifest) {
  manifest.digests = std::move(whole);
  for (const auto& [name, tensor] : tensors) manifest.digests[name] = tensor.digest;
  for (const auto& entry : fs::directory_iterator(dir)) {
    std::string name = entry.path().filename().string();
    bool counts = entry.is_regular_file() && !holds_tensors(name) && !manifest.digests.contains(name);
    if (counts) manifest.digests[name] = file_digest(entry.path());
  }
  manifest.identity = identity_of(tensors, read_file(dir / layout_of(dir).config()));
  write_file(dir / "manifest.json", manifest_to_json(manifest).dump(2) + "\n");
}

// Digests of a file and of its tensors, in one pass over bytes of which every part is what its rank wrote.
std::string read_back(const SafetensorsFile& file, const Parts& parts, Digests& tensors) {
  Xxh3 whole;
  uint64_t head = file.tensors().empty() ? fs::file_size(file.path()) : file.tensors().front().begin;
  file.stream({.end = head}, [&](const Piece& piece) { whole.update(piece.bytes); });
  for (const TensorInfo& info : file.tensors()) {
    Xxh3 hash;
    uint64_t at = 0;
    auto written = parts.find(info.name);
    for (const Part& part : written == parts.end() ? std::vector<Part>() : written->second) {
      SF_CHECK(part.begin == at && part.end <= info.bytes(), Exit::kSoftware,
               "{}: rank {} wrote bytes {} to {} of {}, wanted those from {} on", file.path().string(), part.rank,
               part.begin, part.end, info.name, at);
      Xxh3 own;
      file.stream({.begin = info.begin + part.begin, .end = info.begin + part.end}, [&](const Piece& piece) {
        for (Xxh3* sum : {&own, &hash, &whole}) sum->update(piece.bytes);
      });
      SF_CHECK(own.digest() == part.digest || fault("ckpt.any_part"), Exit::kIo,
               "{}: what was read back of {} differs from what rank {} wrote", file.path().string(), info.name,
               part.rank);
      at = part.end;
    }
    SF_CHECK(at == info.bytes(), Exit::kSoftware, "{}: nobody wrote {} from byte {} on", file.path().string(),
             info.name, at);
    tensors[info.name] = {info.dtype, info.shape, hex64(hash.digest())};
  }
  return hex64(whole.digest());
}

void sync_tree(const fs::path& dir) {
  // All writes begin before the first is waited for.
  for (const auto& entry : fs::recursive_directory_iterator(dir))
    if (entry.is_regular_file()) ::sync_file_range(open_read(entry.path()).get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_directory()) sync_dir(entry.path());
    if (!entry.is_regular_file()) continue;
    UniqueFd fd = open_read(entry.path());
    sync_fd(fd.get(), entry.path());
  }
  sync_dir(dir);
}

}  // namespace

Publisher::Publisher(fs::path final_dir, Job job) : final_(std::move(final_dir)), job_(std::move(job)) {
  if (!final_.has_filename()) final_ = final_.parent_path();  // "out/" names the same directory as "out"
  std::error_code error;
  SF_CHECK(!fs::exists(fs::symlink_status(final_, error)), Exit::kCantCreate,
           "{} exists already; remove it or choose another -o", final_.string());
  parents_ = NewDirs(parent_of(final_));
  temporary_ =
      fault("ckpt.torn_publish") ? final_ : parent_of(final_) / (temporary_prefix(final_) + std::to_string(getpid()));
  if (job_.resume) take_over();
  remove_stale(final_);
  SF_CHECK(kept() > 0 || ::mkdir(temporary_.c_str(), 0755) == 0, exit_of_errno(errno, Exit::kCantCreate),
           "cannot create {}: {}", temporary_.string(), errno_text(errno));
  lock_ = open_dir(temporary_);
  if (lock_.valid()) (void)flock(lock_.get(), LOCK_EX | LOCK_NB);
}

// What a killed process of the same job had finished becomes ours. A file that is damaged is found out by the reading
// back before the rename.
void Publisher::take_over() {
  std::string prefix = temporary_prefix(final_);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent_of(final_), ignored)) {
    std::string name = entry.path().filename().string();
    fs::path notes = entry.path() / kProgress;
    if (!name.starts_with(prefix) || !is_stale(entry.path(), name.substr(prefix.size())) || !is_present(notes))
      continue;
    try {
      Json progress = Json::parse(read_file(notes), notes.string());
      if (progress.get_string("job", "") != job_.digest || progress.at("files").as_object().empty()) continue;
      if (::rename(entry.path().c_str(), temporary_.c_str()) != 0) continue;
      kept_ = progress.at("files");
      return;
    } catch (const Error&) {
      // written by half: nothing of it counts
    }
  }
}

void Publisher::note_finished(const std::string& file, const Json& digests) {
  kept_.set(file, digests);
  fs::path notes = temporary_ / kProgress, fresh = notes.string() + ".new";
  write_file(fresh, Json::object().set("job", job_.digest).set("files", kept_).dump() + "\n");
  fs::rename(fresh, notes);  // whole or not at all; not synced, for a process that is killed
}

Publisher::~Publisher() {
  if (done_ || temporary_.empty()) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

fs::path Publisher::commit(const std::vector<std::pair<std::string, TensorView>>& tensors, const Json& config,
                           Manifest manifest, uint64_t shard_bytes) {
  std::vector<TensorSource> sources;
  for (const auto& [name, view] : tensors)
    sources.push_back(
        {name, view.dtype, view.shape, [&view = view](const TensorSource::Sink& sink) { sink(view.span()); }});
  return commit(sources, config, std::move(manifest), shard_bytes);
}

fs::path Publisher::commit(const std::vector<TensorSource>& tensors, const Json& config, Manifest manifest,
                           uint64_t shard_bytes) {
  const Layout layout = layout_for(config);
  const Json finished = kept_;
  Digests digests = write_tensors(temporary_, layout, tensors, shard_bytes,
                                  [&](const std::string& file, const Sources& shard, Digests& all) {
                                    if (const Json* known = finished.find(file); known && is_present(temporary_ / file))
                                      return take_digests(shard, *known, all);
                                    write_shard(temporary_ / file, shard, {}, all);
                                    if (!job_.digest.empty()) note_finished(file, digests_json(shard, all));
                                  });
  ::unlink((temporary_ / kProgress).c_str());
  write_file(temporary_ / layout.config(), config.dump(2) + "\n");
  write_manifest(temporary_, digests, {}, std::move(manifest));
  std::vector<std::string> wrong = Checkpoint::open(temporary_).verify();
  SF_CHECK(wrong.empty(), Exit::kIo, "{}: what was read back differs from what was written: {}", final_.string(),
           fmt::join(wrong, ", "));
  return commit_files();
}

void Publisher::reserve(const std::vector<TensorInfo>& tensors, const Json& config, uint64_t shard_bytes) {
  const Layout layout = layout_for(config);
  std::vector<TensorSource> declared;
  for (const TensorInfo& tensor : tensors) declared.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
  write_tensors(temporary_, layout, declared, shard_bytes,
                [&](const std::string& file, const Sources& shard, Digests&) {
                  reserve_safetensors(temporary_ / file, declared_of(shard));
                });
  write_file(temporary_ / layout.config(), config.dump(2) + "\n");
}

fs::path Publisher::commit_reserved(const Parts& parts, Manifest manifest) {
  Digests tensors, others;
  std::map<std::string, std::string> whole;
  for (const auto& entry : fs::directory_iterator(temporary_)) {
    std::string name = entry.path().filename().string();
    if (!name.ends_with(".safetensors")) continue;
    bool ours = holds_tensors(name);
    std::string digest = read_back(SafetensorsFile::open(entry.path()), parts, ours ? tensors : others);
    if (!ours) whole[name] = digest;
  }
  write_manifest(temporary_, tensors, std::move(whole), std::move(manifest));
  return commit_files();
}

fs::path Publisher::commit_plain(const std::vector<TensorSource>& tensors, const Json& config, const Metadata& metadata,
                                 const std::function<void(const fs::path& dir)>& prove) {
  const Layout layout = layout_for(config);
  write_tensors(temporary_, layout, tensors, kShardBytes,
                [&](const std::string& file, const Sources& shard, Digests& all) {
                  write_shard(temporary_ / file, shard, metadata, all);
                });
  write_file(temporary_ / layout.config(), config.dump(2) + "\n");
  prove(temporary_);
  return commit_files();
}

fs::path Publisher::commit_files() {
  sync_tree(temporary_);
  if (temporary_ != final_) {
    int rc = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, final_.c_str(), RENAME_NOREPLACE);
    if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) rc = ::rename(temporary_.c_str(), final_.c_str());
    SF_CHECK(rc == 0, exit_of_errno(errno, Exit::kCantCreate), "cannot rename {} onto {}: {}", temporary_.string(),
             final_.string(), errno_text(errno));
  }
  done_ = true;
  lock_ = UniqueFd();
  sync_dir(parent_of(final_));
  return final_;
}

}  // namespace sf::ckpt
