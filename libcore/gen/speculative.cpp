// SPDX-License-Identifier: Apache-2.0
#include "gen/speculative.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/fault.h"
#include "gen/sequence.h"

namespace sf::gen {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kFeedRows = 256;  // of a prompt at once: bounds memory, changes no bit

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Speculation {
 public:
  Speculation(Target& target, Drafter& draft, std::span<const Prompt> prompts, const GenerateOptions& options,
              const Proposals& proposals, const std::function<void(const Completion&)>& done)
      : target_(target),
        draft_(draft),
        prompts_(prompts),
        options_(options),
        proposals_(proposals),
        done_(done),
        chooser_(target, options),
        picker_(chooser_, options.sampling) {
    stats_.tried.resize(static_cast<size_t>(proposals.depth));
    stats_.accepted.resize(static_cast<size_t>(proposals.depth));
  }

  SpeculativeStats run() {
    const int64_t target_before = target_.forwards(), draft_before = draft_.forwards();
    while (!(options_.cancelled && options_.cancelled())) {
      Clock::time_point start = Clock::now();
      while (static_cast<int64_t>(seats_.size()) < options_.batch && next_ < prompts_.size()) admit();
      stats_.all.prefill_s += seconds_since(start);
      if (seats_.empty()) break;
      start = Clock::now();
      propose();
      stats_.draft_s += seconds_since(start);
      proposals_.branch() ? verify_trees() : verify();
      stats_.all.decode_s += seconds_since(start);
    }
    stats_.all.target_forwards = target_.forwards() - target_before;
    stats_.draft_forwards = draft_.forwards() - draft_before;
    return stats_;
  }

 private:
  void admit() {
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    auto seat = std::make_unique<Seat>(Seat{Sequence(prompts_[next_], next_, options_)});
    ++next_;
    seat->cache = pool_.take(seat->sequence.capacity(proposals_.depth + 1 + proposals_.nodes),
                             [&](int64_t size) { return target_.make_cache(size); });
    seat->draft_cache = draft_pool_.take(seat->sequence.capacity(draft_.look_ahead(proposals_)),
                                         [&](int64_t size) { return draft_.make_cache(size); });
    States states = target_.prefill(seat->cache, seat->sequence.ids(), draft_.capture_layers());
    stats_.all.prompt_tokens += seat->cache.length();
    Sequence* sequence = &seat->sequence;
    const at::Tensor last = states.final_norm.narrow(0, states.final_norm.size(0) - 1, 1);
    if (!sequence->commit(chooser_.choose(last, std::span(&sequence, 1)).front())) {
      finish(*seat);
      return;
    }
    feed_prompt(*seat, states.captured);
    seats_.push_back(std::move(seat));
  }

  // A prompt's features, in pieces as the target took them; those of its last token wait for the first proposal.
  void feed_prompt(Seat& seat, const std::vector<at::Tensor>& captured) {
    const int64_t rows = captured.front().size(0);
    auto take = [&](int64_t count) {
      for (const at::Tensor& state : captured) seat.features.push_back(state.narrow(0, seat.fed, count));
    };
    Seat* one = &seat;
    while (seat.fed + 1 < rows) {
      take(std::min(kFeedRows, rows - 1 - seat.fed));
      draft_.feed(std::span(&one, 1));
    }
    take(1);
  }

  void propose() {
    std::vector<Seat*> all;
    for (auto& seat : seats_) {
      seat->proposed.clear();
      seat->laws.clear();
      seat->tree = {};
      all.push_back(seat.get());
    }
    if (proposals_.branch())
      draft_.grow(all, proposals_);
    else
      draft_.propose(all, proposals_.depth, picker_);
  }

  void verify() {
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    std::vector<std::vector<int32_t>> ids;
    std::vector<Part> parts;
    for (auto& seat : seats_) {
      ids.push_back({seat->sequence.last()});
      ids.back().insert(ids.back().end(), seat->proposed.begin(), seat->proposed.end());
    }
    for (size_t i = 0; i < seats_.size(); ++i) parts.push_back({&seats_[i]->cache, ids[i]});
    const States states = target_.forward(parts, draft_.capture_layers());
    std::optional<ops::Top1> top;
    at::Tensor logits;
    if (chooser_.needs_scores())
      logits = target_.logits(states.final_norm);
    else
      top = target_.top1(states.final_norm);
    int64_t first = 0;
    for (size_t i = 0; i < seats_.size(); first += std::ssize(ids[i++])) {
      Seat& seat = *seats_[i];
      const int64_t start = seat.cache.length() - std::ssize(ids[i]);
      const int64_t kept = top ? accept_best(seat, *top, first) : accept_drawn(seat, logits, first);
      ++stats_.verifications;
      stats_.committed += kept;
      if (seat.sequence.finished()) continue;
      seat.cache.truncate(start + kept);
      for (const at::Tensor& state : states.captured) seat.features.push_back(state.narrow(0, first, kept));
    }
    dismiss();
  }

  // A seat's way through its tree as the target chooses: rows of the forward, the last committed token's first.
  struct Walk {
    Seat* seat;
    int64_t first;              // row of its last committed token
    std::vector<int32_t> path;  // nodes of its cache: 0 for that token, 1 + n for the tree's node n
  };

  void verify_trees() {
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    std::vector<std::vector<int32_t>> ids(seats_.size()), parents(seats_.size());
    std::vector<Part> parts;
    std::vector<Walk> walks;
    int64_t row = 0;
    for (size_t i = 0; i < seats_.size(); ++i) {
      ids[i] = {seats_[i]->sequence.last()}, parents[i] = {kTrunk};
      for (const TreeNode& node : seats_[i]->tree.nodes()) {
        ids[i].push_back(node.token);
        parents[i].push_back(node.parent + 1);
      }
      parts.push_back({&seats_[i]->cache, ids[i], parents[i]});
      walks.push_back({seats_[i].get(), row, {0}});
      row += std::ssize(ids[i]);
    }
    const States states = target_.forward(parts, draft_.capture_layers());
    walk(walks, states.final_norm);
    for (Walk& one : walks) {
      ++stats_.verifications;
      stats_.committed += std::ssize(one.path);
      if (one.seat->sequence.finished()) continue;
      one.seat->cache.keep(one.path);
      at::Tensor rows = at::empty({std::ssize(one.path)}, at::kLong);
      for (size_t i = 0; i < one.path.size(); ++i) rows.mutable_data_ptr<int64_t>()[i] = one.first + one.path[i];
      for (const at::Tensor& state : states.captured) one.seat->features.push_back(state.index_select(0, rows));
    }
    dismiss();
  }

  // Commits the target's choices, level by level for all seats, as long as the tree foresaw them.
  void walk(std::vector<Walk>& walks, const at::Tensor& final_norm) {
    std::vector<Walk*> open;
    for (Walk& one : walks) open.push_back(&one);
    while (!open.empty()) {
      std::vector<at::Tensor> rows;
      std::vector<Sequence*> sequences;
      for (const Walk* one : open) {
        rows.push_back(final_norm.narrow(0, one->first + one->path.back(), 1));
        sequences.push_back(&one->seat->sequence);
      }
      const std::vector<int32_t> chosen = chooser_.choose(at::cat(rows), sequences);
      std::vector<Walk*> further;
      for (size_t i = 0; i < open.size(); ++i)
        if (step(*open[i], chosen[i])) further.push_back(open[i]);
      open = std::move(further);
    }
  }

  // Commits `id`; whether the walk goes on, at a node of the tree that holds it.
  bool step(Walk& one, int32_t id) {
    const std::vector<TreeNode>& nodes = one.seat->tree.nodes();
    const int32_t here = one.path.back() - 1;
    bool looked = false;
    int32_t next = kTrunk;
    for (size_t i = 0; i < nodes.size() && next == kTrunk; ++i)
      if (nodes[i].parent == here) {
        looked = true;
        if (nodes[i].token == id) next = static_cast<int32_t>(i);
      }
    if (looked) note(one.path.size() - 1, next != kTrunk);
    if (!one.seat->sequence.commit(id) || next == kTrunk) return false;
    one.path.push_back(next + 1);
    return true;
  }

  void dismiss() {
    for (auto& seat : seats_)
      if (seat->sequence.finished()) finish(*seat);
    std::erase_if(seats_, [](const std::unique_ptr<Seat>& seat) { return seat->sequence.finished(); });
  }

  // Commits what holds of the seat's proposals, and the target's own token after them. Returns the tokens committed.
  int64_t accept_best(Seat& seat, const ops::Top1& top, int64_t first) {
    for (size_t j = 0;; ++j) {
      const int64_t row = first + static_cast<int64_t>(j);
      const int32_t wanted = top.top1.const_data_ptr<int32_t>()[row];
      seat.sequence.least_margin = std::min(seat.sequence.least_margin, top.margin.const_data_ptr<float>()[row]);
      const bool more = j < seat.proposed.size();
      const bool agreed = more && (seat.proposed[j] == wanted || fault("gen.accept_any"));
      if (more) note(j, agreed);
      const bool goes_on = seat.sequence.commit(agreed ? seat.proposed[j] : wanted);
      if (!agreed || !goes_on) return static_cast<int64_t>(j) + 1;
    }
  }

  int64_t accept_drawn(Seat& seat, const at::Tensor& logits, int64_t first) {
    const auto width = static_cast<size_t>(logits.size(1));
    Sequence& sequence = seat.sequence;
    for (size_t j = 0;; ++j) {
      const std::span<const float> scores(logits.const_data_ptr<float>() + (static_cast<size_t>(first) + j) * width,
                                          width);
      const Law law = law_of(scores, options_.sampling, sequence.ids());
      const uint64_t index = sequence.answered();
      const bool more = j < seat.proposed.size();
      bool agreed = false;
      int32_t id = 0;
      if (more) {
        id = seat.proposed[j];
        agreed = chooser_.draws().accept(sequence.sample(), index) * seat.laws[j].of(id) < law.of(id);
        note(j, agreed);
      }
      if (!agreed) {
        const double u = chooser_.draws().token(sequence.sample(), index);
        id = more && !fault("gen.residual") ? law.minus(seat.laws[j]).pick(u) : law.pick(u);
      }
      if (options_.log_probs) sequence.log_prob += log_prob_of(scores, id);
      if (options_.sampling.greedy()) sequence.least_margin = std::min(sequence.least_margin, margin_of(scores));
      const bool goes_on = sequence.commit(id);
      if (!agreed || !goes_on) return static_cast<int64_t>(j) + 1;
    }
  }

  void note(size_t place, bool agreed) {
    ++stats_.tried[place];
    stats_.accepted[place] += agreed;
  }

  void finish(Seat& seat) {
    const Completion completion = seat.sequence.completion();
    ++stats_.all.prompts;
    stats_.all.new_tokens += static_cast<int64_t>(completion.ids.size());
    pool_.give(std::move(seat.cache));
    draft_pool_.give(std::move(seat.draft_cache));
    done_(completion);
  }

  Target& target_;
  Drafter& draft_;
  std::span<const Prompt> prompts_;
  const GenerateOptions& options_;
  const Proposals proposals_;
  const std::function<void(const Completion&)>& done_;
  Chooser chooser_;
  Picker picker_;
  CachePool pool_, draft_pool_;
  std::vector<std::unique_ptr<Seat>> seats_;
  size_t next_ = 0;
  SpeculativeStats stats_;
};

}  // namespace

SpeculativeStats speculate(Target& target, Drafter& draft, std::span<const Prompt> prompts,
                           const GenerateOptions& options, const Proposals& proposals,
                           const std::function<void(const Completion&)>& done) {
  options.check();
  SF_CHECK(proposals.depth >= 1, Exit::kConfig, "draft_tokens must be 1 or more, found {}", proposals.depth);
  return Speculation(target, draft, prompts, options, proposals, done).run();
}

}  // namespace sf::gen
