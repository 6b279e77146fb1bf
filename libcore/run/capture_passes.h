// SPDX-License-Identifier: Apache-2.0
// Rows of a capture over its ranks: who computes which, together where the ranks hold the target together.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/group.h"
#include "run/capture.h"

namespace sf::run {

// The rows of one pass: as many of the first ones as the ranks take, each the one with the fewest tokens so far, until
// that one would have more than `most`. A row alone on its rank may be longer.
struct Shares {
  std::vector<std::vector<size_t>> of;  // indices, by rank
  size_t taken = 0;                     // rows; at least one
};
Shares share_out(std::span<const text::ChatRow* const> rows, int world, int64_t most);

class Passes {
 public:
  // Borrows both. `most`: tokens of a rank in a pass; `deadline_s`: of one, for the slowest rank.
  Passes(Capture& capture, comm::Group& group, int64_t most, double deadline_s)
      : capture_(capture), group_(group), most_(most), deadline_s_(deadline_s) {}

  // Every rank calls it with the same rows (at least one). `take` gets the samples that this rank made, each with its
  // index; an error of it is every rank's. How many of the first rows are done.
  size_t run(std::span<const text::ChatRow* const> rows, const std::function<void(size_t, stream::Sample)>& take);

  int64_t tokens() const { return tokens_; }   // computed, by all ranks
  double seconds() const { return seconds_; }  // spent on them
  double tokens_per_s() const { return seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0; }
  comm::Call call(std::string_view tag) const { return {tag, Deadline::after(Seconds(deadline_s_))}; }
  comm::Group& group() const { return group_; }

 private:
  Capture& capture_;
  comm::Group& group_;
  int64_t most_;
  double deadline_s_;
  int64_t tokens_ = 0;
  double seconds_ = 0;
};

// Samples of every rank on the first one, by rank and in their order there; nothing on the others. Bytes travel with
// their hashes, as in a file of features (kData).
std::vector<std::vector<stream::Sample>> samples_on_first_rank(comm::Group& group, std::span<const stream::Sample> mine,
                                                               const comm::Call& call);
// The way back: to each rank those of its place.
std::vector<stream::Sample> samples_from_first_rank(comm::Group& group,
                                                    std::span<const std::vector<stream::Sample>> all,
                                                    const comm::Call& call);

}  // namespace sf::run
