// SPDX-License-Identifier: Apache-2.0
#include "tool/new_values.h"

#include <functional>

#include "base/error.h"
#include "base/rng.h"

namespace sf::tool {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // elements made at once

// Hands over `count` values of make(element), converted.
void write_values(int64_t count, Dtype as, const Sink& sink, const std::function<float(int64_t)>& make) {
  std::vector<float> values;
  std::vector<std::byte> piece;
  for (int64_t lo = 0; lo < count; lo += kPiece) {
    int64_t size = std::min(count - lo, kPiece);
    values.resize(static_cast<size_t>(size));
    piece.resize(static_cast<size_t>(size) * size_of(as));
    for (int64_t i = 0; i < size; ++i) values[static_cast<size_t>(i)] = make(lo + i);
    convert(std::as_bytes(std::span(values)), Dtype::kF32, piece, as);
    sink(piece);
  }
}

void write_rows(const ckpt::Checkpoint& from, const std::string& name, const std::vector<int64_t>& rows, int64_t width,
                Dtype as, const Sink& sink) {
  std::vector<std::byte> row(static_cast<size_t>(width) * size_of(as));
  for (int64_t r : rows) {
    from.read(name, r * width, (r + 1) * width, as, row);
    sink(row);
  }
}

// "NAME" or "NAME*FACTOR": the target's parameter, scaled; "1+NAME*FACTOR": one more than that parameter, scaled.
void write_scaled(const ckpt::Checkpoint& from, const std::string& of, int64_t count, Dtype as, const Sink& sink) {
  size_t star = of.find('*');
  float factor = star == std::string::npos ? 1.0f : std::stof(of.substr(star + 1));
  const bool centred = of.starts_with("1+");
  const size_t name = centred ? 2 : 0;
  std::vector<float> values(static_cast<size_t>(count));
  from.read(of.substr(name, star == std::string::npos ? star : star - name), 0, count, Dtype::kF32,
            std::as_writable_bytes(std::span(values)));
  write_values(count, as, sink,
               [&](int64_t i) { return factor * (values[static_cast<size_t>(i)] + (centred ? 1 : 0)); });
}

}  // namespace

void write_start(const Start& start, const ckpt::Checkpoint& target, const std::vector<int64_t>& rows, Dtype as,
                 const Sink& sink) {
  int64_t count = numel(start.shape);
  std::string of = start.init.substr(start.init.find(':') + 1);
  if (start.init.starts_with("rows:")) return write_rows(target, of, rows, start.shape[1], as, sink);
  if (start.init.starts_with("copy:")) return write_scaled(target, of, count, as, sink);
  if (start.init == "ones") return write_values(count, as, sink, [](int64_t) { return 1.0f; });
  if (start.init == "zeros") return write_values(count, as, sink, [](int64_t) { return 0.0f; });
  if (start.init.starts_with("tap:")) {  // [sides, taps, width]
    int64_t tap = std::stoll(of), taps = start.shape[1], width = start.shape[2];
    return write_values(count, as, sink, [=](int64_t i) { return i / width % taps == tap ? 1.0f : 0.0f; });
  }
  Rng rng(start.seed, "init:" + start.name);
  if (start.init.starts_with("uniform:")) {
    double bound = std::stod(of);
    return write_values(count, as, sink, [&](int64_t i) {
      return static_cast<float>((2 * rng.uniform(0, static_cast<uint64_t>(i)) - 1) * bound);
    });
  }
  float deviation = std::stof(of);
  auto noise = [&](int64_t i) { return deviation * rng.normal(0, static_cast<uint64_t>(i)); };
  if (start.init.starts_with("normal:")) return write_values(count, as, sink, noise);
  SF_ASSERT(start.init.starts_with("pass:"));
  int64_t height = start.shape[0], columns = start.shape[1];
  auto identity = [=](int64_t i) { return i % columns == columns - height + i / columns ? 1.0f : 0.0f; };
  write_values(count, as, sink, [&](int64_t i) { return identity(i) + noise(i); });
}

}  // namespace sf::tool
