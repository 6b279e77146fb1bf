// SPDX-License-Identifier: Apache-2.0
#include "gen/speculative.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>

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
              int64_t draft_tokens, const std::function<void(const Completion&)>& done)
      : target_(target),
        draft_(draft),
        prompts_(prompts),
        options_(options),
        draft_tokens_(draft_tokens),
        done_(done),
        chooser_(target, options),
        picker_(chooser_, options.sampling) {
    stats_.tried.resize(static_cast<size_t>(draft_tokens));
    stats_.accepted.resize(static_cast<size_t>(draft_tokens));
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
      verify();
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
    seat->cache =
        pool_.take(seat->sequence.capacity(draft_tokens_ + 1), [&](int64_t size) { return target_.make_cache(size); });
    seat->draft_cache = draft_pool_.take(seat->sequence.capacity(draft_.look_ahead(draft_tokens_)),
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
      all.push_back(seat.get());
    }
    draft_.propose(all, draft_tokens_, picker_);
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
  const int64_t draft_tokens_;
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
                           const GenerateOptions& options, int64_t draft_tokens,
                           const std::function<void(const Completion&)>& done) {
  options.check();
  SF_CHECK(draft_tokens >= 1, Exit::kConfig, "draft_tokens must be 1 or more, found {}", draft_tokens);
  return Speculation(target, draft, prompts, options, draft_tokens, done).run();
}

}  // namespace sf::gen
