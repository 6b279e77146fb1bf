// SPDX-License-Identifier: Apache-2.0
#include "tool/verl_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/present.h"
#include "ckpt/torch_file.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kBefore = "model_world_size_", kBetween = "_rank_", kAfter = ".pt";

struct Ranked {
  int64_t world = 0, rank = 0;
};

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool plain = error == std::errc() && end == text.data() + text.size() && value >= 0;
  return plain ? std::optional(value) : std::nullopt;
}

std::optional<Ranked> ranked(std::string_view name) {
  size_t between = name.find(kBetween);
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter) || between == std::string_view::npos) return std::nullopt;
  auto world = whole_number(name.substr(kBefore.size(), between - kBefore.size()));
  size_t from = between + kBetween.size();
  auto rank = whole_number(name.substr(from, name.size() - std::min(name.size(), from + kAfter.size())));
  return world && rank ? std::optional(Ranked{*world, *rank}) : std::nullopt;
}

// Ranks by world size.
std::map<int64_t, std::set<int64_t>> files_in(const fs::path& dir) {
  std::map<int64_t, std::set<int64_t>> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored))
    if (std::optional<Ranked> is = ranked(entry.path().filename().string())) found[is->world].insert(is->rank);
  return found;
}

// The world whose files count, all of them there.
int64_t world_of(const fs::path& dir) {
  std::map<int64_t, std::set<int64_t>> found = files_in(dir);
  int64_t world = found.begin()->first;
  if (fs::path config = dir / "fsdp_config.json"; is_present(config))
    world = Json::parse(read_file(config), config.string()).get_int("world_size", world);
  else
    SF_CHECK(found.size() == 1, Exit::kData, "{} holds files of {} ranks and of {}: keep those of one run",
             dir.string(), world, found.rbegin()->first);
  std::vector<std::string> missing;
  int64_t count = 0;
  for (int64_t rank = 0; rank < world; ++rank) {
    if (found[world].contains(rank)) continue;
    if (++count <= static_cast<int64_t>(ckpt::kListed)) missing.push_back(std::to_string(rank));
    if (count > static_cast<int64_t>(ckpt::kListed) && rank > *found[world].rbegin()) {
      count += world - rank - 1;
      break;
    }
  }
  SF_CHECK(count == 0 && world > 0, Exit::kData, "{}: of {} ranks the files of {} are missing: {}{}", dir.string(),
           world, count, fmt::join(missing, ", "), count > static_cast<int64_t>(missing.size()) ? ", ..." : "");
  return world;
}

// A tensor as its ranks hold it: parts along one dimension, each with one rank or more.
struct Parts {
  struct Held {
    std::shared_ptr<const ckpt::TorchFile> file;
    const ckpt::TorchTensor* tensor;
    int64_t rank;
  };
  std::string name;
  Shape shape;
  size_t cut = 0;                          // dimension
  std::vector<int64_t> begin;              // of each part, and the end, in rows of the cut dimension
  std::vector<std::vector<Held>> holders;  // of each part

  void read(uint64_t offset, std::span<std::byte> to) const;
};

uint64_t product(std::span<const int64_t> extents) {
  uint64_t out = 1;
  for (int64_t extent : extents) out *= static_cast<uint64_t>(extent);
  return out;
}

void read_alike(const Parts& parts, size_t part, uint64_t offset, std::span<std::byte> to) {
  const std::vector<Parts::Held>& holders = parts.holders[part];
  holders[0].file->read(*holders[0].tensor, offset, to);
  std::vector<std::byte> other(holders.size() > 1 ? to.size() : 0);
  for (size_t i = 1; i < holders.size(); ++i) {
    holders[i].file->read(*holders[i].tensor, offset, other);
    SF_CHECK(std::memcmp(other.data(), to.data(), to.size()) == 0 || fault("tool.unequal_replicas"), Exit::kData,
             "{}: ranks {} and {} hold the same part of it, with different bytes", parts.name, holders[0].rank,
             holders[i].rank);
  }
}

void Parts::read(uint64_t offset, std::span<std::byte> to) const {
  const uint64_t size = size_of(holders[0][0].tensor->dtype);
  std::span<const int64_t> extents(shape);
  const uint64_t row = size * (shape.empty() ? 1 : product(extents.subspan(cut + 1)));
  const uint64_t block = row * static_cast<uint64_t>(begin.back());
  while (!to.empty()) {
    uint64_t outer = offset / block, inside = offset % block;
    auto after = std::upper_bound(begin.begin(), begin.end(), static_cast<int64_t>(inside / row));
    auto part = static_cast<size_t>(after - begin.begin() - 1);
    uint64_t from = static_cast<uint64_t>(begin[part]) * row, end = static_cast<uint64_t>(begin[part + 1]) * row;
    std::span<std::byte> piece = to.first(std::min<uint64_t>(to.size(), end - inside));
    read_alike(*this, part, outer * (end - from) + inside - from, piece);
    to = to.subspan(piece.size());
    offset += piece.size();
  }
}

// The mesh's dimension that cuts, or none; every rank must say the same.
std::optional<size_t> cutting(const ckpt::TorchTensor& tensor) {
  std::optional<size_t> found;
  for (size_t m = 0; m < tensor.cuts.size(); ++m) {
    if (tensor.cuts[m] < 0) continue;
    SF_CHECK(!found, Exit::kData, "it is cut over two dimensions of the mesh of ranks, as by tensor parallelism");
    found = m;
  }
  return found;
}

int64_t coordinate(const Shape& mesh, size_t dimension, int64_t rank) {
  for (size_t m = mesh.size(); --m > dimension;) rank /= mesh[m];
  return rank % mesh[dimension];
}

void check_mesh(const ckpt::TorchTensor& tensor, int64_t world) {
  int64_t ranks = 1;
  for (int64_t extent : tensor.mesh) {
    SF_CHECK(extent > 0 && extent <= world / ranks, Exit::kData, "its mesh of ranks is {}, there are {}",
             to_string(tensor.mesh), world);
    ranks *= extent;
  }
  SF_CHECK(tensor.mesh.empty() || ranks == world, Exit::kData, "its mesh of ranks is {}, there are {}",
           to_string(tensor.mesh), world);
}

// `held`: by rank, none missing.
Parts parts_of(const std::string& name, std::vector<Parts::Held> held) {
  const ckpt::TorchTensor& first = *held[0].tensor;
  check_mesh(first, std::ssize(held));
  std::optional<size_t> over = cutting(first);
  const Shape& shape = first.mesh.empty() ? first.shape : first.whole;
  int64_t count = over ? first.mesh[*over] : 1;
  Parts parts{name, shape, over ? static_cast<size_t>(first.cuts[*over]) : 0, {}, {}};
  int64_t rows = shape.empty() ? 1 : shape[parts.cut], chunk = rows / count + (rows % count != 0);
  SF_CHECK(rows >= 0, Exit::kData, "its shape is {}", to_string(shape));
  for (int64_t i = 0; i <= count; ++i) parts.begin.push_back(i == count ? rows : std::min(rows, i * chunk));
  parts.holders.resize(static_cast<size_t>(count));
  for (Parts::Held& each : held) {
    const ckpt::TorchTensor& tensor = *each.tensor;
    auto part = static_cast<size_t>(over ? coordinate(first.mesh, *over, each.rank) : 0);
    Shape wanted = shape;
    if (over) wanted[parts.cut] = parts.begin[part + 1] - parts.begin[part];
    SF_CHECK(tensor.dtype == first.dtype && tensor.whole == first.whole && tensor.mesh == first.mesh &&
                 tensor.cuts == first.cuts && tensor.shape == wanted,
             Exit::kData, "rank {} has {} {} of it, wanted {} {}", each.rank, tensor.type, to_string(tensor.shape),
             first.type, to_string(wanted));
    parts.holders[part].push_back(std::move(each));
  }
  return parts;
}

using HeldByName = std::map<std::string, std::vector<Parts::Held>>;

HeldByName open_all(const fs::path& dir, int64_t world) {
  HeldByName held;
  for (int64_t rank = 0; rank < world; ++rank) {
    fs::path path = dir / fmt::format("{}{}{}{}{}", kBefore, world, kBetween, rank, kAfter);
    auto file = std::make_shared<const ckpt::TorchFile>(ckpt::TorchFile::open(path));
    for (const ckpt::TorchTensor& tensor : file->tensors()) held[tensor.name].push_back({file, &tensor, rank});
  }
  return held;
}

void refuse_adapter(const fs::path& dir, const HeldByName& held) {
  for (const auto& [name, ranks] : held)
    SF_CHECK(name.find("lora_") == std::string::npos, Exit::kData,
             "{} holds an adapter beside its base (\"{}\"): import {} with --target, the base's checkpoint",
             dir.string(), name, (dir / "lora_adapter").string());
}

}  // namespace

std::optional<fs::path> verl_shards_in(const fs::path& path) {
  for (const fs::path& dir : {path, path / "actor"})
    if (!files_in(dir).empty()) return dir;
  return std::nullopt;
}

void add_verl(const fs::path& shards, TensorSet& set) {
  const int64_t world = world_of(shards);
  HeldByName held = open_all(shards, world);
  refuse_adapter(shards, held);
  std::vector<std::string> faults;
  for (auto& [name, ranks] : held) {
    if (std::ssize(ranks) != world) {
      faults.push_back(fmt::format("{}: {} of {} ranks have it", name, ranks.size(), world));
      continue;
    }
    try {
      auto parts = std::make_shared<const Parts>(parts_of(name, std::move(ranks)));
      const ckpt::TorchTensor& first = *parts->holders[0][0].tensor;
      uint64_t bytes = static_cast<uint64_t>(numel(parts->shape)) * size_of(first.dtype);
      auto read = [parts](uint64_t offset, std::span<std::byte> to) { parts->read(offset, to); };
      set.tensors.push_back(
          {name, shards.filename().string(), std::string(first.type), first.dtype, parts->shape, bytes, read, {}});
    } catch (const Error& error) {
      faults.push_back(fmt::format("{}: {}", name, error.what()));
    }
  }
  SF_CHECK(faults.empty(), Exit::kData, "{}: {} tensors do not fit together: {}", shards.string(), faults.size(),
           ckpt::listed(faults));
}

}  // namespace sf::tool
