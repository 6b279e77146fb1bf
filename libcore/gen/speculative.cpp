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

struct Slot {
  Sequence sequence;
  Cache cache, draft_cache;
  int64_t fed = 0;                   // draft entries made from target features: tokens 0 .. fed - 1
  std::vector<at::Tensor> features;  // captured states of the tokens from `fed` on, rows not fed yet
  at::Tensor carried;                // draft output that predicts the next token, [1, H]
  std::vector<int32_t> proposed;
  std::vector<Law> laws;  // sampled: the law each proposal was drawn from
};

class Speculation {
 public:
  Speculation(Target& target, Eagle3Draft& draft, std::span<const Prompt> prompts, const GenerateOptions& options,
              int64_t draft_tokens, const std::function<void(const Completion&)>& done)
      : target_(target),
        draft_(draft),
        prompts_(prompts),
        options_(options),
        draft_tokens_(draft_tokens),
        done_(done),
        chooser_(target, options) {
    stats_.tried.resize(static_cast<size_t>(draft_tokens));
    stats_.accepted.resize(static_cast<size_t>(draft_tokens));
  }

  SpeculativeStats run() {
    const int64_t target_before = target_.forwards(), draft_before = draft_.forwards();
    while (!(options_.cancelled && options_.cancelled())) {
      Clock::time_point start = Clock::now();
      while (static_cast<int64_t>(slots_.size()) < options_.batch && next_ < prompts_.size()) admit();
      stats_.all.prefill_s += seconds_since(start);
      if (slots_.empty()) break;
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
    auto slot = std::make_unique<Slot>(Slot{Sequence(prompts_[next_], next_, options_), {}, {}});
    ++next_;
    const int64_t capacity = slot->sequence.capacity(draft_tokens_ + 1);
    slot->cache = pool_.take(capacity, [&](int64_t size) { return target_.make_cache(size); });
    slot->draft_cache = draft_pool_.take(capacity, [&](int64_t size) { return draft_.make_cache(size); });
    States states = target_.prefill(slot->cache, slot->sequence.ids(), draft_.capture_layers());
    stats_.all.prompt_tokens += slot->cache.length();
    Sequence* sequence = &slot->sequence;
    const at::Tensor last = states.final_norm.narrow(0, states.final_norm.size(0) - 1, 1);
    if (!sequence->commit(chooser_.choose(last, std::span(&sequence, 1)).front())) {
      finish(*slot);
      return;
    }
    feed_prompt(*slot, states.captured);
    slots_.push_back(std::move(slot));
  }

  // A prompt's features, in pieces as the target took them.
  void feed_prompt(Slot& slot, const std::vector<at::Tensor>& captured) {
    const int64_t rows = captured.front().size(0);
    while (slot.fed < rows) {
      const int64_t count = std::min(kFeedRows, rows - slot.fed);
      for (const at::Tensor& state : captured) slot.features.push_back(state.narrow(0, slot.fed, count));
      Slot* one = &slot;
      feed(std::span(&one, 1));
    }
  }

  // Feeds the features that came with the last forward; leaves each slot's `carried`.
  void feed(std::span<Slot* const> slots) {
    std::vector<Part> parts;
    std::vector<std::vector<at::Tensor>> columns(3);
    for (Slot* slot : slots) {
      const int64_t rows = slot->features.front().size(0);
      slot->draft_cache.truncate(slot->fed);
      parts.push_back({&slot->draft_cache,
                       slot->sequence.ids().subspan(static_cast<size_t>(slot->fed) + 1, static_cast<size_t>(rows))});
      slot->fed += rows;
      for (size_t i = 0; i < 3; ++i) columns[i].push_back(slot->features[i]);
    }
    const at::Tensor captured[] = {at::cat(columns[0]), at::cat(columns[1]), at::cat(columns[2])};
    const at::Tensor out = draft_.forward(parts, draft_.fuse(captured));
    int64_t row = 0;
    for (Slot* slot : slots) {
      row += slot->features.front().size(0);
      slot->carried = out.narrow(0, row - 1, 1);
      slot->features.clear();
    }
  }

  void propose() {
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    std::vector<Slot*> grown;
    for (auto& slot : slots_)
      if (!slot->features.empty()) grown.push_back(slot.get());
    if (!grown.empty()) feed(grown);
    std::vector<at::Tensor> last;
    for (auto& slot : slots_) {
      slot->proposed.clear();
      slot->laws.clear();
      last.push_back(slot->carried);
    }
    at::Tensor carried = at::cat(last);
    for (int64_t j = 0;; ++j) {
      draw(carried);
      if (j + 1 == draft_tokens_) return;
      std::vector<Part> parts;
      for (auto& slot : slots_) parts.push_back({&slot->draft_cache, std::span(slot->proposed).last(1)});
      carried = draft_.forward(parts, carried);
    }
  }

  // One more proposal for every slot.
  void draw(const at::Tensor& carried) {
    if (!chooser_.needs_scores()) {
      const std::vector<int32_t> best = draft_.best(carried);
      for (size_t i = 0; i < slots_.size(); ++i) slots_[i]->proposed.push_back(best[i]);
      return;
    }
    const at::Tensor scores = draft_.scores(carried);
    const auto width = static_cast<size_t>(scores.size(1));
    for (size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = *slots_[i];
      std::vector<int32_t> history(slot.sequence.ids().begin(), slot.sequence.ids().end());
      history.insert(history.end(), slot.proposed.begin(), slot.proposed.end());
      Law law =
          law_of({scores.const_data_ptr<float>() + i * width, width}, options_.sampling, history, draft_.target_ids());
      slot.proposed.push_back(
          law.pick(chooser_.draws().draft(slot.sequence.sample(), slot.sequence.answered() + slot.proposed.size())));
      slot.laws.push_back(std::move(law));
    }
  }

  void verify() {
    at::AutoDispatchBelowADInplaceOrView no_gradients;
    const int64_t block = draft_tokens_ + 1;
    std::vector<std::vector<int32_t>> ids;
    std::vector<Part> parts;
    for (auto& slot : slots_) {
      ids.push_back({slot->sequence.last()});
      ids.back().insert(ids.back().end(), slot->proposed.begin(), slot->proposed.end());
    }
    for (size_t i = 0; i < slots_.size(); ++i) parts.push_back({&slots_[i]->cache, ids[i]});
    const States states = target_.forward(parts, draft_.capture_layers());
    std::optional<ops::Top1> top;
    at::Tensor logits;
    if (chooser_.needs_scores())
      logits = target_.logits(states.final_norm);
    else
      top = target_.top1(states.final_norm);
    for (size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = *slots_[i];
      const int64_t first = static_cast<int64_t>(i) * block, start = slot.cache.length() - block;
      const int64_t kept = top ? accept_best(slot, *top, first) : accept_drawn(slot, logits, first);
      ++stats_.verifications;
      stats_.committed += kept;
      if (slot.sequence.finished()) continue;
      slot.cache.truncate(start + kept);
      for (const at::Tensor& state : states.captured) slot.features.push_back(state.narrow(0, first, kept));
    }
    for (auto& slot : slots_)
      if (slot->sequence.finished()) finish(*slot);
    std::erase_if(slots_, [](const std::unique_ptr<Slot>& slot) { return slot->sequence.finished(); });
  }

  // Commits what holds of the slot's proposals, and the target's own token after them. Returns the tokens committed.
  int64_t accept_best(Slot& slot, const ops::Top1& top, int64_t first) {
    for (size_t j = 0;; ++j) {
      const int64_t row = first + static_cast<int64_t>(j);
      const int32_t wanted = top.top1.const_data_ptr<int32_t>()[row];
      slot.sequence.least_margin = std::min(slot.sequence.least_margin, top.margin.const_data_ptr<float>()[row]);
      const bool more = j < slot.proposed.size();
      const bool agreed = more && (slot.proposed[j] == wanted || fault("gen.accept_any"));
      if (more) note(j, agreed);
      const bool goes_on = slot.sequence.commit(agreed ? slot.proposed[j] : wanted);
      if (!agreed || !goes_on) return static_cast<int64_t>(j) + 1;
    }
  }

  int64_t accept_drawn(Slot& slot, const at::Tensor& logits, int64_t first) {
    const auto width = static_cast<size_t>(logits.size(1));
    Sequence& sequence = slot.sequence;
    for (size_t j = 0;; ++j) {
      const std::span<const float> scores(logits.const_data_ptr<float>() + (static_cast<size_t>(first) + j) * width,
                                          width);
      const Law law = law_of(scores, options_.sampling, sequence.ids());
      const uint64_t index = sequence.answered();
      const bool more = j < slot.proposed.size();
      bool agreed = false;
      int32_t id = 0;
      if (more) {
        id = slot.proposed[j];
        agreed = chooser_.draws().accept(sequence.sample(), index) * slot.laws[j].of(id) < law.of(id);
        note(j, agreed);
      }
      if (!agreed) {
        const double u = chooser_.draws().token(sequence.sample(), index);
        id = more && !fault("gen.residual") ? law.minus(slot.laws[j]).pick(u) : law.pick(u);
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

  void finish(Slot& slot) {
    const Completion completion = slot.sequence.completion();
    ++stats_.all.prompts;
    stats_.all.new_tokens += static_cast<int64_t>(completion.ids.size());
    pool_.give(std::move(slot.cache));
    draft_pool_.give(std::move(slot.draft_cache));
    done_(completion);
  }

  Target& target_;
  Eagle3Draft& draft_;
  std::span<const Prompt> prompts_;
  const GenerateOptions& options_;
  const int64_t draft_tokens_;
  const std::function<void(const Completion&)>& done_;
  Chooser chooser_;
  CachePool pool_, draft_pool_;
  std::vector<std::unique_ptr<Slot>> slots_;
  size_t next_ = 0;
  SpeculativeStats stats_;
};

}  // namespace

SpeculativeStats speculate(Target& target, Eagle3Draft& draft, std::span<const Prompt> prompts,
                           const GenerateOptions& options, int64_t draft_tokens,
                           const std::function<void(const Completion&)>& done) {
  options.check();
  SF_CHECK(draft_tokens >= 1, Exit::kConfig, "draft_tokens must be 1 or more, found {}", draft_tokens);
  return Speculation(target, draft, prompts, options, draft_tokens, done).run();
}

}  // namespace sf::gen
