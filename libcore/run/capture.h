// SPDX-License-Identifier: Apache-2.0
// Rows of chats to samples: what a run of sf-capture features does for each, and a test of it on the first ones.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gen/target.h"
#include "stream/sample.h"
#include "text/chat.h"
#include "tool/capture_wish.h"

namespace sf::run {

// States [S, H] as a sample carries them. `feature`: a contract's feature_dtype.
struct Carried {
  at::Tensor stored;  // [S, H]; U8 of float8
  at::Tensor scale;   // F32 [S] of float8, else undefined
  at::Tensor values;  // what a trainer reads: stored, or fp32 of float8
};
Carried carry(const at::Tensor& states, std::string_view feature);
at::Tensor values_of(const at::Tensor& stored, const at::Tensor& scale);

class Capture {
 public:
  // Borrows the target. `feature`: the type the states are carried in.
  Capture(gen::Target& target, tool::CaptureWish wish, std::string feature)
      : target_(target), wish_(std::move(wish)), feature_(std::move(feature)) {}

  // Takes the states of rows from elsewhere, instead of computing them.
  void take_from(std::function<gen::States(const text::ChatRow&)> given) { given_ = std::move(given); }
  // One unpadded sequence alone: the bits depend on the row alone. A rejected row is void with its reason. kData naming
  // the row if a state is not finite, or a token's state behind the first block is zero throughout.
  stream::Sample sample_of(const text::ChatRow& chat);

  gen::Target& target() const { return target_; }
  const tool::CaptureWish& wish() const { return wish_; }
  const std::string& feature() const { return feature_; }
  int64_t tokens() const { return tokens_; }   // computed
  double seconds() const { return seconds_; }  // spent on them
  double tokens_per_s() const { return seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0; }

 private:
  gen::States states_of(std::span<const int32_t> ids);

  gen::Target& target_;
  const tool::CaptureWish wish_;
  const std::string feature_;
  int64_t tokens_ = 0;
  double seconds_ = 0;
  std::function<gen::States(const text::ChatRow&)> given_;
  gen::States before_;  // of a fault alone: what another row left
};

// What check_capture saw.
struct CaptureCheck {
  int64_t rows = 0, tokens = 0;
  double seconds = 0;
  // Of values carried in a narrower type: the largest error, as a share of the largest value of its token.
  double widest = 0;
  // Mean cross entropy of `predicted` next tokens from the last state as computed and as carried; where it is carried
  // in a narrower type.
  int64_t predicted = 0;
  double exact_loss = 0, carried_loss = 0;

  std::string line(std::string_view feature) const;
};

// The first `most` rows that are kept, each cut to kMostChecked tokens, are captured one after another, taken apart
// into frames that travel mixed, put together, and compared bit by bit with one plain forward of the row alone with
// more tokens behind it. kData naming row, tensor and what it is instead (another layer, the state without its norm,
// another row's, one shifted by a token), or for states that are equal where they cannot be. Of a copy: what the run
// counts is its own.
inline constexpr int64_t kMostChecked = 320;  // beyond 256, where a forward is cut
CaptureCheck check_capture(Capture capture, std::span<const text::ChatRow> rows, int64_t most);

}  // namespace sf::run
