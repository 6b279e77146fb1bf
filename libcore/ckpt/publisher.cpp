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

// Digests are of the bytes in memory: what the read-back must find again.
using Metadata = std::map<std::string, std::string>;

void write_shard(const fs::path& path, const Sources& shard, const Metadata& metadata, Digests& digests) {
  std::vector<TensorInfo> declared;
  for (const TensorSource* tensor : shard) declared.push_back({tensor->name, tensor->dtype, tensor->shape, 0, 0});
  SafetensorsWriter writer(path, declared, metadata);
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

void fill_digests(const fs::path& dir, const Digests& tensors, std::string_view config_text, Manifest& manifest) {
  manifest.digests.clear();
  for (const auto& [name, tensor] : tensors) manifest.digests[name] = tensor.digest;
  for (const auto& entry : fs::directory_iterator(dir)) {
    std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !holds_tensors(name)) manifest.digests[name] = file_digest(entry.path());
  }
  manifest.identity = identity_of(tensors, config_text);
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
  std::string config_text = config.dump(2) + "\n";
  write_file(temporary_ / layout.config(), config_text);
  fill_digests(temporary_, digests, config_text, manifest);
  write_file(temporary_ / "manifest.json", manifest_to_json(manifest).dump(2) + "\n");
  std::vector<std::string> wrong = Checkpoint::open(temporary_).verify();
  SF_CHECK(wrong.empty(), Exit::kIo, "{}: what was read back differs from what was written: {}", final_.string(),
           fmt::join(wrong, ", "));
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

namespace {

void point(const fs::path& run_dir, const std::string& link, const std::string& name) {
  fs::path temporary = run_dir / fmt::format(".{}.tmp-{}", link, getpid());
  ::unlink(temporary.c_str());
  SF_CHECK(::symlink(name.c_str(), temporary.c_str()) == 0, exit_of_errno(errno, Exit::kCantCreate),
           "cannot create {}: {}", temporary.string(), errno_text(errno));
  if (::rename(temporary.c_str(), (run_dir / link).c_str()) != 0) {
    int number = errno;
    ::unlink(temporary.c_str());
    fail(exit_of_errno(number, Exit::kCantCreate), "cannot move {} to {}: {}", (run_dir / link).string(), name,
         errno_text(number));
  }
  sync_dir(run_dir);
}

}  // namespace

void point_latest(const fs::path& run_dir, const std::string& name) {
  point(run_dir, "latest", name);
}

void point_best(const fs::path& run_dir, const std::string& name) {
  point(run_dir, "best", name);
}

std::optional<fs::path> best_checkpoint(const fs::path& run_dir) {
  std::error_code error;
  fs::path name = fs::read_symlink(run_dir / "best", error);
  return !error && fs::is_directory(run_dir / name, error) ? std::optional(run_dir / name) : std::nullopt;
}

namespace {

// Why a checkpoint cannot be gone on from; empty: it is whole.
std::string damage_of(const fs::path& dir) {
  try {
    std::vector<std::string> wrong = Checkpoint::open(dir).verify();
    return wrong.empty() ? "" : "not what was published: " + listed(wrong);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

Latest newest_checkpoint(const fs::path& run_dir) {
  Latest found;
  std::error_code ignored;
  std::vector<std::pair<int64_t, fs::path>> steps;
  for (const auto& entry : fs::directory_iterator(run_dir, ignored)) {
    std::string name = entry.path().filename().string();
    int64_t step = 0;
    if (!name.starts_with("step-")) continue;
    auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (error == std::errc() && end == name.data() + name.size()) steps.emplace_back(step, entry.path());
  }
  auto take = [&](const fs::path& path) {
    std::string why = damage_of(path);
    if (why.empty())
      found.whole = path;
    else
      found.damaged.push_back(fmt::format("{}: {}", path.filename().string(), why));
    return why.empty();
  };
  // A kill between a publication and the move of `latest` leaves a newer step than `latest` names.
  std::sort(steps.rbegin(), steps.rend());
  for (const auto& [step, path] : steps)
    if (take(path)) return found;
  fs::path link = run_dir / "latest";
  if (!fs::is_symlink(link, ignored)) return found;
  fs::path target = run_dir / fs::read_symlink(link, ignored);
  bool seen = std::any_of(steps.begin(), steps.end(), [&](const auto& step) { return step.second == target; });
  if (!seen) take(target);
  return found;
}

std::optional<fs::path> latest_checkpoint(const fs::path& run_dir) {
  return newest_checkpoint(run_dir).whole;
}

}  // namespace sf::ckpt
