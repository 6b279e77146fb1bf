// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "ckpt/safetensors.h"

namespace sf::ckpt {
namespace {

constexpr uint64_t kFlushBytes = uint64_t{32} << 20;

Json shape_json(const Shape& shape) {
  Json out = Json::array();
  for (int64_t extent : shape) out.push(extent);
  return out;
}

// Length prefix and JSON, padded with spaces so that the data begins at a multiple of 8. Returns the bytes of data too.
std::string header_text(const std::vector<TensorInfo>& declared, const std::map<std::string, std::string>& metadata,
                        uint64_t& data_bytes) {
  Json::Object header;
  if (!metadata.empty()) {
    Json entries = Json::object();
    for (const auto& [key, value] : metadata) entries.set(key, value);
    header.emplace_back("__metadata__", std::move(entries));
  }
  std::set<std::string_view> names;
  data_bytes = 0;
  for (const TensorInfo& info : declared) {
    SF_CHECK(info.name != "__metadata__" && !info.name.empty() && names.insert(info.name).second, Exit::kSoftware,
             "tensor name \"{}\" is reserved or given twice", info.name);
    uint64_t end = data_bytes + static_cast<uint64_t>(numel(info.shape)) * size_of(info.dtype);
    header.emplace_back(info.name, Json::object()
                                       .set("dtype", name_of(info.dtype))
                                       .set("shape", shape_json(info.shape))
                                       .set("data_offsets", Json(Json::Array{Json(data_bytes), Json(end)})));
    data_bytes = end;
  }
  std::string text = Json(std::move(header)).dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char*>(&length), 8);
  return text;
}

std::map<std::string, std::string> with_format(std::map<std::string, std::string> metadata) {
  metadata.emplace("format", "pt");
  return metadata;
}

}  // namespace

struct SafetensorsWriter::State {
  std::filesystem::path path, temporary;
  UniqueFd fd;
  uint64_t left = 0;      // bytes declared and not yet appended
  uint64_t unsynced = 0;  // bytes written since the disk was last told to start

  ~State() {
    if (fd.valid()) ::unlink(temporary.c_str());
  }
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorInfo>& declared,
                                     const std::map<std::string, std::string>& metadata)
    : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->temporary = path.parent_path() / fmt::format(".{}.tmp-{}", path.filename().string(), getpid());
  std::string header = header_text(declared, with_format(metadata), state_->left);
  state_->fd = create_file(state_->temporary);
  write_all(state_->fd.get(), header, path);
}

SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;

namespace {

// Bytes of `piece` that the kernel copied; fewer where the file systems do not do it for each other.
size_t copied(const Piece& piece, int to, const std::filesystem::path& path) {
  auto from = static_cast<off64_t>(piece.offset);
  size_t done = 0;
  while (piece.fd >= 0 && done < piece.bytes.size()) {
    ssize_t got = ::copy_file_range(piece.fd, &from, to, nullptr, piece.bytes.size() - done, 0);
    if (got < 0 && errno == EINTR) continue;
    bool full = got < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG);
    SF_CHECK(!full, exit_of_errno(errno, Exit::kIo), "cannot write {}: {}", path.string(), errno_text(errno));
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

}  // namespace

void SafetensorsWriter::append(const Piece& piece) {
  size_t size = piece.bytes.size();
  SF_CHECK(size <= state_->left, Exit::kSoftware, "{}: {} bytes appended, {} are left of those declared",
           state_->path.string(), size, state_->left);
  size_t done = copied(piece, state_->fd.get(), state_->path);
  write_all(state_->fd.get(), piece.bytes.subspan(done), state_->path);
  state_->left -= size;
  state_->unsynced += size;
  if (state_->unsynced < kFlushBytes) return;
  // The disk starts now: the fsync at the end finds little left. What this says is a hint.
  ::sync_file_range(state_->fd.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  state_->unsynced = 0;
}

void SafetensorsWriter::finish() {
  SF_CHECK(state_->left == 0, Exit::kSoftware, "{}: {} of the bytes declared were not appended", state_->path.string(),
           state_->left);
  sync_fd(state_->fd.get(), state_->path);
  SF_CHECK(::rename(state_->temporary.c_str(), state_->path.c_str()) == 0, exit_of_errno(errno, Exit::kCantCreate),
           "cannot rename onto {}: {}", state_->path.string(), errno_text(errno));
  state_->fd.close(state_->path.string());
}

namespace {

// Widest first: so every tensor is aligned.
bool lies_before(const TensorInfo& a, const TensorInfo& b) {
  size_t wide_a = size_of(a.dtype), wide_b = size_of(b.dtype);
  return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
}

void reserve(int fd, uint64_t size, const std::filesystem::path& path) {
  int rc;
  do rc = ::fallocate(fd, 0, 0, static_cast<off_t>(size));
  while (rc != 0 && errno == EINTR);
  if (rc != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) rc = ::ftruncate(fd, static_cast<off_t>(size));
  SF_CHECK(rc == 0, exit_of_errno(errno, Exit::kIo), "cannot reserve {} bytes for {}: {}", size, path.string(),
           errno_text(errno));
}

}  // namespace

void reserve_safetensors(const std::filesystem::path& path, std::vector<TensorInfo> declared,
                         const std::map<std::string, std::string>& metadata) {
  std::sort(declared.begin(), declared.end(), lies_before);
  uint64_t data_bytes = 0;
  std::string header = header_text(declared, with_format(metadata), data_bytes);
  UniqueFd fd = create_file(path);
  reserve(fd.get(), header.size() + data_bytes, path);
  write_all(fd.get(), header, path);
  fd.close(path.string());
}

SafetensorsFiller::SafetensorsFiller(const std::filesystem::path& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {
  SF_CHECK(fd_.valid(), exit_of_errno(errno, Exit::kCantCreate), "cannot write {}: {}", path.string(),
           errno_text(errno));
}

void SafetensorsFiller::write(const TensorInfo& info, uint64_t offset, std::span<const std::byte> bytes) {
  SF_ASSERT(offset <= info.bytes() && bytes.size() <= info.bytes() - offset);
  unsynced_ += bytes.size();
  for (uint64_t at = info.begin + offset; !bytes.empty();) {
    ssize_t got = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    SF_CHECK(got > 0, exit_of_errno(errno, Exit::kIo), "cannot write {}: {}", path_.string(), errno_text(errno));
    at += static_cast<uint64_t>(got);
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  if (unsynced_ < kFlushBytes) return;
  ::sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  unsynced_ = 0;
}

void SafetensorsFiller::sync() {
  sync_fd(fd_.get(), path_);
}

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, TensorView>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> declared;
  std::map<std::string_view, const TensorView*> views;
  for (const auto& [name, view] : tensors) {
    declared.push_back({name, view.dtype, view.shape, 0, 0});
    views.emplace(name, &view);
  }
  std::sort(declared.begin(), declared.end(), lies_before);
  SafetensorsWriter writer(path, declared, metadata);
  for (const TensorInfo& info : declared) writer.append(views.at(info.name)->span());
  writer.finish();
}

}  // namespace sf::ckpt
