// SPDX-License-Identifier: Apache-2.0
// Position ids of text with images and videos, three planes (time, height, width), from the kinds of its tokens alone.
// Source: models_text_scoring 2.4, 3.6.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sf::rl {

enum class TokenKind : uint8_t { kText = 0, kImage = 1, kVideo = 2 };

// In patches, before merging; `seconds`: of a video, from one frame to the next.
struct VisionGrid {
  int64_t frames = 1, height = 0, width = 0;
  double seconds = 1;
};

struct VisionForm {
  int64_t merge = 2;             // patches a side that make one token
  bool frames_apart = true;      // each frame of a video is a run of its own, with text between (Qwen3-VL and later)
  double tokens_per_second = 0;  // of a video's time (Qwen2.5-VL); 0: one a frame
};

struct VisionPositions {
  std::vector<int64_t> values;  // [3, tokens], row-major
  int64_t delta = 0;            // largest position + 1 - tokens: what a later token's place in the row is off by
};

// Runs of tokens of one kind; grids are taken in order, over all samples of a batch.
class VisionPlanes {
 public:
  VisionPlanes(VisionForm form, std::vector<VisionGrid> images, std::vector<VisionGrid> videos);
  // Of one sample without its padding. kData if a run is not as long as its grid says, or no grid is left.
  VisionPositions of(std::span<const TokenKind> kinds);

 private:
  const VisionGrid& next(TokenKind kind);
  VisionForm form_;
  std::vector<VisionGrid> images_, videos_;
  size_t image_ = 0, video_ = 0;
};

}  // namespace sf::rl
