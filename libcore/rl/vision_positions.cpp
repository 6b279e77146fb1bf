// SPDX-License-Identifier: Apache-2.0
#include "rl/vision_positions.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace sf::rl {
namespace {

constexpr int64_t kMostPatches = int64_t{1} << 24;  // a side, or frames

void check(const VisionGrid& grid, int64_t merge) {
  const bool within = grid.frames >= 1 && grid.height >= 1 && grid.width >= 1 && grid.frames <= kMostPatches &&
                      grid.height <= kMostPatches && grid.width <= kMostPatches;
  SF_CHECK(within && grid.height % merge == 0 && grid.width % merge == 0, Exit::kData,
           "a grid of {} x {} x {} patches is out of range, wanted sides that are multiples of {}", grid.frames,
           grid.height, grid.width, merge);
}

std::vector<VisionGrid> frame_by_frame(const std::vector<VisionGrid>& videos) {
  std::vector<VisionGrid> frames;
  for (const VisionGrid& video : videos)
    frames.insert(frames.end(), static_cast<size_t>(video.frames), {1, video.height, video.width, video.seconds});
  return frames;
}

}  // namespace

VisionPlanes::VisionPlanes(VisionForm form, std::vector<VisionGrid> images, std::vector<VisionGrid> videos)
    : form_(form), images_(std::move(images)), videos_(std::move(videos)) {
  SF_CHECK(form.merge >= 1, Exit::kData, "patches are merged by {}, wanted 1 or more", form.merge);
  for (const auto* grids : {&images_, &videos_})
    for (const VisionGrid& grid : *grids) check(grid, form.merge);
  if (form.frames_apart) videos_ = frame_by_frame(videos_);
}

const VisionGrid& VisionPlanes::next(TokenKind kind) {
  const bool image = kind == TokenKind::kImage;
  std::vector<VisionGrid>& grids = image ? images_ : videos_;
  size_t& at = image ? image_ : video_;
  SF_CHECK(at < grids.size(), Exit::kData, "tokens of {} are more than the {} grids there are",
           image ? "images" : "videos", grids.size());
  return grids[at++];
}

VisionPositions VisionPlanes::of(std::span<const TokenKind> kinds) {
  const auto tokens = static_cast<int64_t>(kinds.size());
  VisionPositions result{std::vector<int64_t>(kinds.size() * 3)};
  auto put = [&](int64_t token, int64_t time, int64_t row, int64_t column) {
    int64_t* plane = result.values.data() + token;
    plane[0] = time, plane[tokens] = row, plane[2 * tokens] = column;
  };
  int64_t current = 0, last = -1;
  for (int64_t begin = 0, end = 0; begin < tokens; begin = end) {
    const TokenKind kind = kinds[static_cast<size_t>(begin)];
    while (end < tokens && kinds[static_cast<size_t>(end)] == kind) ++end;
    if (kind == TokenKind::kText) {
      for (int64_t t = begin; t < end; ++t, ++current) put(t, current, current, current);
      last = std::max(last, current - 1);
      continue;
    }
    const VisionGrid& grid = next(kind);
    const int64_t rows = grid.height / form_.merge, columns = grid.width / form_.merge;
    SF_CHECK(grid.frames * rows * columns == end - begin, Exit::kData,
             "a run of {} vision tokens belongs to a grid of {} x {} x {}", end - begin, grid.frames, rows, columns);
    const bool timed = kind == TokenKind::kVideo && form_.tokens_per_second > 0;
    const double pace = timed ? form_.tokens_per_second * grid.seconds : 1;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t place = t - begin, frame = place / (rows * columns);
      const auto time = static_cast<int64_t>(std::floor(static_cast<double>(frame) * pace));
      put(t, current + time, current + place / columns % rows, current + place % columns);
      last = std::max({last, current + time, current + rows - 1, current + columns - 1});
    }
    current += std::max(grid.height, grid.width) / form_.merge;
  }
  result.delta = last + 1 - tokens;
  return result;
}

}  // namespace sf::rl
