// SPDX-License-Identifier: Apache-2.0
#include "train/shares.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/hash.h"

namespace sf::train {
namespace {

namespace fs = std::filesystem;
constexpr size_t kHugePage = size_t{2} << 20;

ckpt::Part write_share(ckpt::SafetensorsFiller& file, const ckpt::TensorInfo& info, const Share& share) {
  const size_t width = size_of(share.as);
  const uint64_t begin = static_cast<uint64_t>(share.first) * width;
  ckpt::Part part{begin, begin, 0, 0};
  Xxh3 hash;
  std::span<const std::byte> left = share.values.span();
  std::vector<std::byte> bounce(share.as == share.values.dtype ? 0 : ckpt::kBounceBytes);
  while (!left.empty()) {
    std::span<const std::byte> piece = left.first(std::min(left.size(), ckpt::kBounceBytes));
    left = left.subspan(piece.size());
    if (!bounce.empty()) {
      std::span<std::byte> narrow = std::span(bounce).first(piece.size() / size_of(share.values.dtype) * width);
      convert(piece, share.values.dtype, narrow, share.as);
      piece = narrow;
    }
    hash.update(piece);
    file.write(info, part.end, piece);
    part.end += piece.size();
  }
  part.digest = hash.digest();
  return part;
}

Copy memory_for(const Shares& shares) {
  size_t bytes = 0;
  for (const Share& share : shares) bytes += share.values.bytes();
  bytes = std::max<size_t>(1, (bytes + kHugePage - 1) / kHugePage) * kHugePage;
  Copy copy(static_cast<std::byte*>(std::aligned_alloc(kHugePage, bytes)));
  SF_CHECK(copy, Exit::kOs, "no memory for the {} bytes that a checkpoint is written from", bytes);
  ::madvise(copy.get(), bytes, MADV_HUGEPAGE);  // a hint
  return copy;
}

}  // namespace

Shares shares_of(engine::Engine& engine, Dtype stored) {
  Shares shares;
  for (const engine::Engine::Piece& piece : engine.state()) {
    auto bytes = std::as_bytes(std::span(piece.values));
    Share share{
        piece.name, piece.shape, stored, piece.interval.lo, {bytes.data(), Dtype::kF32, {piece.interval.size()}}};
    if (share.is_moment()) share.as = Dtype::kF32;
    shares.push_back(std::move(share));
  }
  return shares;
}

void copy_values(Shares& shares, Copy& copy) {
  if (!copy) copy = memory_for(shares);
  std::byte* to = copy.get();
  for (Share& share : shares) {
    const size_t size = share.values.bytes();
    if (size == 0) continue;
    std::memcpy(to, share.values.data, size);
    share.values.data = std::exchange(to, to + size);
  }
}

std::vector<ckpt::TensorInfo> declared(const Shares& shares, bool moments) {
  std::vector<ckpt::TensorInfo> tensors;
  for (const Share& share : shares)
    if (share.is_moment() == moments) tensors.push_back({share.name, share.as, share.shape});
  return tensors;
}

uint64_t whole_bytes(const Shares& shares) {
  uint64_t bytes = 0;
  for (const Share& share : shares) bytes += static_cast<uint64_t>(numel(share.shape)) * size_of(share.as);
  return bytes;
}

std::vector<ckpt::Part> fill(const fs::path& dir, const Shares& shares) {
  const ckpt::Checkpoint weights = ckpt::Checkpoint::open(dir);
  const ckpt::SafetensorsFile moments = ckpt::SafetensorsFile::open(dir / kMoments);
  std::map<fs::path, ckpt::SafetensorsFiller> files;
  std::vector<ckpt::Part> parts;
  for (const Share& share : shares) {
    ckpt::Part& part = parts.emplace_back();
    if (share.values.bytes() == 0) continue;
    const ckpt::Checkpoint::Place place = share.is_moment()
                                              ? ckpt::Checkpoint::Place{&moments, *moments.find(share.name)}
                                              : weights.stored_place(share.name);
    part = write_share(files.try_emplace(place.file->path(), place.file->path()).first->second, place.info, share);
  }
  for (auto& [path, file] : files) file.sync();
  return parts;
}

ckpt::Parts gather_parts(comm::Group& group, const Shares& shares, const std::vector<ckpt::Part>& mine,
                         const comm::Call& call) {
  const auto world = static_cast<size_t>(group.world());
  std::vector<ckpt::Part> all(world * mine.size());
  std::vector<size_t> sizes(world, mine.size() * sizeof(ckpt::Part));
  group.all_gather(std::as_bytes(std::span(mine)), sizes, std::as_writable_bytes(std::span(all)), call);
  ckpt::Parts parts;
  for (size_t i = 0; i < shares.size(); ++i) {
    std::vector<ckpt::Part>& of = parts[shares[i].name];
    for (size_t r = 0; r < world; ++r) {
      ckpt::Part part = all[r * mine.size() + i];
      part.rank = static_cast<int>(r);
      if (part.end > part.begin) of.push_back(part);
    }
    std::sort(of.begin(), of.end(), [](const ckpt::Part& a, const ckpt::Part& b) { return a.begin < b.begin; });
  }
  return parts;
}

}  // namespace sf::train
