// SPDX-License-Identifier: Apache-2.0
// Rows of chats to samples: what a run of sf-capture features does for each, and a test of it on the first ones.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "run/states.h"
#include "stream/producer.h"
#include "stream/sample.h"
#include "text/chat.h"
#include "tool/capture_shard.h"

namespace sf::run {

// States [S, H] as a sample carries them. `feature`: a contract's feature_dtype.
struct Carried {
  at::Tensor stored;  // [S, H]; U8 of float8
  at::Tensor scale;   // F32 [S] of float8, else undefined
  at::Tensor values;  // what a trainer reads: stored, or fp32 of float8
};
Carried carry(const at::Tensor& states, std::string_view feature);
at::Tensor values_of(const at::Tensor& stored, const at::Tensor& scale);

// What a teacher will see of the last state: as it is carried, in the type that the target computes in. Null if nobody
// looks.
gen::Seen seen_by_teacher(const tool::CaptureWish& wish, const std::string& feature, Dtype compute);

class Capture {
 public:
  // Borrows the states. `feature`: the type they are carried in.
  Capture(StatesOf& states, tool::CaptureWish wish, std::string feature)
      : states_(states), wish_(std::move(wish)), feature_(std::move(feature)) {}

  // Of rows that are kept, each an unpadded sequence alone: the bits depend on the row alone. Every rank calls it where
  // states.shared().
  std::vector<Computed> compute(std::span<const text::ChatRow* const> rows);
  // The row as it is carried; a rejected one (of which nothing was computed) is void with its reason. kData naming the
  // row if a state is not finite, or a token's state behind the first block is zero throughout.
  stream::Sample sample_of(const text::ChatRow& row, const Computed& computed) const;

  StatesOf& states() const { return states_; }
  const tool::CaptureWish& wish() const { return wish_; }
  const std::string& feature() const { return feature_; }

 private:
  StatesOf& states_;
  const tool::CaptureWish wish_;
  const std::string feature_;
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

// The first `most` rows that are kept, each cut to tool::kMostChecked tokens, are dealt out to the ranks, captured
// together, taken apart into frames that travel mixed, put together, and compared bit by bit with one plain forward of
// the row alone with more tokens behind it (StatesOf::plainly). kData naming row, tensor and what it is instead
// (another layer, the state without its norm, another row's, one shifted by a token), or for states that are equal
// where they cannot be. Every rank calls it, and an error of one is every rank's. Rows and tokens are those of all
// ranks. `carry`: every rank's samples on the way that the run's take, instead of those frames; every rank calls it.
using Carrier = std::function<std::vector<stream::Sample>(std::vector<stream::Sample> samples)>;
CaptureCheck check_capture(Capture& capture, std::span<const text::ChatRow> rows, int64_t most, comm::Group& group,
                           const Carrier& carry = {});
// Over sockets of this host, from a producer of these options to a trainer that asks for all at once.
std::vector<stream::Sample> through_sockets(stream::ProducerOptions options, std::vector<stream::Sample> samples);

}  // namespace sf::run
