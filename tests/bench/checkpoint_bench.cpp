// SPDX-License-Identifier: Apache-2.0
// usage: checkpoint_bench DIR MIB REPEAT: a checkpoint of MIB (16 tensors, fp32) saved and loaded beside plain writes
// and reads of as many bytes in turn, and a file of 10,000 tensors opened. Both sides fsync; what is saved is hashed
// and read again before it is published; loading is warm, its values end in memory. One JSON line, seconds each.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>

#include "base/deadline.h"
#include "base/file.h"
#include "base/json.h"
#include "ckpt/checkpoint.h"

namespace {

namespace fs = std::filesystem;
using namespace sf;
constexpr size_t kTensors = 16, kMany = 10'000, kPiece = size_t{8} << 20;
using Named = std::vector<std::pair<std::string, TensorView>>;

double seconds(const std::function<void()>& work) {
  double start = monotonic_s();
  work();
  return monotonic_s() - start;
}

void write_plain(const fs::path& file, std::span<const std::byte> bytes) {
  UniqueFd fd = create_file(file);
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    std::span<const std::byte> piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    write_all(fd.get(), {reinterpret_cast<const char*>(piece.data()), piece.size()}, file);
  }
  if (fsync(fd.get()) != 0) std::abort();
}

void read_plain(const fs::path& file, std::span<std::byte> bytes) {
  UniqueFd fd = open_read(file);
  for (size_t at = 0; at < bytes.size(); at += kPiece)
    pread_exact(fd.get(), bytes.subspan(at, std::min(kPiece, bytes.size() - at)), at, file);
}

Named views_of(std::span<const std::byte> bytes, size_t count) {
  Named views;
  size_t each = bytes.size() / count;
  for (size_t i = 0; i < count; ++i)
    views.emplace_back(fmt::format("model.layers.{}.some_module_{}.weight", i / 10, i % 10),
                       TensorView{bytes.data() + i * each, Dtype::kF32, {static_cast<int64_t>(each / 4)}});
  return views;
}

void save(const fs::path& dir, const Named& views) {
  ckpt::Publisher publisher(dir);
  publisher.commit(views, Json::object().set("model_type", "bench"), {});
}

void load(const fs::path& dir, std::span<std::byte> bytes) {
  ckpt::Checkpoint open = ckpt::Checkpoint::open(dir);
  for (const std::string& name : open.names()) {
    int64_t count = numel(open.info(name).shape);
    open.read(name, 0, count, Dtype::kF32, bytes.first(static_cast<size_t>(count) * 4));
    bytes = bytes.subspan(static_cast<size_t>(count) * 4);
  }
}

Json list(const std::vector<double>& values) {
  Json out = Json::array();
  for (double value : values) out.push(value);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  const fs::path dir = argv[1];
  const size_t bytes = std::stoull(argv[2]) << 20, repeat = std::stoull(argv[3]);
  std::vector<std::byte> values(bytes), back(bytes);
  for (size_t i = 0; i < bytes; i += 4) values[i] = static_cast<std::byte>(i >> 12);
  const Named views = views_of(values, kTensors);
  std::vector<double> saved, written, loaded, read, opened;
  for (size_t turn = 0; turn <= repeat; ++turn) {
    double w = seconds([&] { write_plain(dir / "plain", values); });
    double s = seconds([&] { save(dir / "saved", views); });
    double r = seconds([&] { read_plain(dir / "plain", back); });
    double l = seconds([&] { load(dir / "saved", back); });
    fs::remove(dir / "plain");
    fs::remove_all(dir / "saved");
    if (turn == 0) continue;  // the first brings pages and programs in
    written.push_back(w), saved.push_back(s), read.push_back(r), loaded.push_back(l);
  }
  ckpt::write_safetensors(dir / "many", views_of(std::span(values).first(kMany * 64), kMany));
  for (size_t turn = 0; turn <= 4 * repeat; ++turn)
    opened.push_back(seconds([&] { ckpt::SafetensorsFile::open(dir / "many"); }));
  fs::remove(dir / "many");
  fmt::print("{}\n", Json::object()
                         .set("written", list(written))
                         .set("saved", list(saved))
                         .set("read", list(read))
                         .set("loaded", list(loaded))
                         .set("opened", list(opened))
                         .dump());
}
