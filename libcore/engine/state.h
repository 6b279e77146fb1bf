// SPDX-License-Identifier: Apache-2.0
// The engine's inside: plan, store, the window's gradients, the step.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/copies.h"
#include "engine/engine.h"
#include "engine/host_tables.h"
#include "engine/lane.h"
#include "engine/pass.h"
#include "engine/store.h"

namespace sf::engine {

class Engine::State {
 public:
  State(comm::Group& group, const arch::ModelSpec& spec, std::vector<model::Segment> segments, EngineOptions options);

  model::Tensors pass(const std::optional<model::Tensors>& micro_batch, const std::string* loss,
                      const std::vector<std::string>& keep);
  StepResult step(double lr, double max_norm, const AdamW& adamw);
  at::Tensor parameter_whole(size_t parameter);
  at::Tensor gradient_whole(size_t parameter);
  void load_state(const std::string& name, const ReadInterval& read);
  uint64_t spilled_bytes() const { return spill_.peak_bytes(); }

  comm::Group& group;
  EngineOptions options;
  std::vector<model::Segment> segments;
  plan::Schedule plan;
  uint64_t before_bytes;  // in tensors of this process before the store
  HostTables hosts;
  Store store;
  Copies copies;
  uint64_t at_rest_bytes;  // measured: what the store took
  plan::Slots slots;
  int64_t steps_done = 0;
  StepTimes times;

 private:
  // The first non-finite gradient of a window: smallest micro-batch, then smallest parameter.
  struct Culprit {
    int64_t micro_batch = INT64_MAX, parameter = INT64_MAX, rank = 0;
    auto operator<=>(const Culprit&) const = default;
  };

  // A stretch of a group's gradient in the order of the fold: elements [at, at + size) of it are those of one
  // parameter's gradient from `from` on. An undefined gradient is zero.
  struct FoldPart {
    size_t parameter = 0, at = 0, size = 0, from = 0;
    at::Tensor gradient;
  };

  comm::Call call(std::string_view tag) const;
  template <typename Body>
  void timed_call(Body&& body) {
    double start = monotonic_s();
    body();
    times.communication += monotonic_s() - start;
  }
  void check_ready();
  void agree_on_plan();
  [[noreturn]] void report_difference(const std::string& mine);
  // The ranks of this replica, and those that hold the same intervals; parts of the group, made when first asked for
  // (by all ranks alike), where the mesh has two dimensions.
  comm::Group& row();
  comm::Group& column();
  void split_ranks();
  void prepare(int64_t time, int64_t end);
  std::vector<plan::Interval> of_row(const std::vector<plan::Interval>& intervals) const;
  void end_window();
  at::Tensor gather_whole(size_t parameter, std::span<const float> held, std::string_view what);
  std::vector<float> window_gradient(size_t parameter) const;  // this rank's owned part, all accumulators added
  uint64_t post(std::string tag, std::function<void(const comm::Call&)> body);
  void wait(uint64_t number);
  void drain();
  void fold(size_t group, std::optional<std::vector<at::Tensor>> gradients);
  std::vector<FoldPart> fold_parts(size_t group, std::vector<at::Tensor> gradients);
  void add_up(std::span<float> sum, std::span<const FoldPart> parts);
  void copy_piece(const FoldPart& part, size_t from, std::span<float> to, bool adds);
  void note_non_finite(size_t parameter);
  void fold_local_sums();
  void add_accumulators();
  Culprit worst_of_all_ranks();
  std::string describe(const Culprit& culprit) const;
  std::vector<std::string> fresh_unused(std::span<const int64_t> uses);
  double update(double lr, double scale, const AdamW& adamw);  // returns StepResult::kept

  std::unique_ptr<comm::Group> row_, column_;
  Spill spill_;
  bool ready_ = false;
  int64_t round_ = 0;  // of this window
  Culprit culprit_;
  std::vector<int64_t> uses_;  // of each parameter in this window, by this rank's micro-batches
  std::set<std::string> named_unused_;
  bool has_sums_ = false;            // this rank had a micro-batch in this window
  std::vector<uint64_t> filled_;     // the lane's number of each group's last gather
  std::array<uint64_t, 2> folds_{};  // and of the last two folds: so many groups have gradients at most
  Lane lane_;                        // last: ends before what its calls touch
};

}  // namespace sf::engine
