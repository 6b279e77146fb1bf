// SPDX-License-Identifier: Apache-2.0
#include "gen/generate.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/present.h"
#include "gen/sequence.h"

namespace sf::gen {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Slot {
  Sequence sequence;
  Cache cache;
};

class Generation {
 public:
  Generation(Target& target, std::span<const Prompt> prompts, const GenerateOptions& options,
             const std::function<void(const Completion&)>& done)
      : target_(target), prompts_(prompts), options_(options), done_(done), chooser_(target, options) {}

  GenerateStats run() {
    const int64_t before = target_.forwards();
    while (!(options_.cancelled && options_.cancelled())) {
      Clock::time_point start = Clock::now();
      while (static_cast<int64_t>(slots_.size()) < options_.batch && next_ < prompts_.size()) admit();
      stats_.prefill_s += seconds_since(start);
      if (slots_.empty()) break;
      start = Clock::now();
      step();
      stats_.decode_s += seconds_since(start);
    }
    stats_.target_forwards = target_.forwards() - before;
    return stats_;
  }

 private:
  void admit() {
    auto slot = std::make_unique<Slot>(Slot{Sequence(prompts_[next_], next_, options_), {}});
    ++next_;
    slot->cache =
        pool_.take(slot->sequence.capacity(0), [&](int64_t capacity) { return target_.make_cache(capacity); });
    const at::Tensor last = prefill(*slot);
    slots_.push_back(std::move(slot));
    commit(last, slots_.size() - 1);
  }

  // Final state of the prompt's last token, [1, H]. A prompt that is given several times in a row, as one that several
  // responses are wanted to, is computed once: what its cache holds is copied.
  at::Tensor prefill(Slot& slot) {
    const std::vector<int32_t>& ids = prompts_[next_ - 1].ids;
    if (shared_.last.defined() && ids == *shared_.ids) {
      slot.cache.copy(shared_.cache);
      return shared_.last;
    }
    const States states = target_.prefill(slot.cache, ids);
    stats_.prompt_tokens += slot.cache.length();
    const at::Tensor last = states.final_norm.narrow(0, states.final_norm.size(0) - 1, 1);
    if (next_ == prompts_.size() || prompts_[next_].ids != ids) return last;
    if (shared_.last.defined()) pool_.give(std::move(shared_.cache));
    shared_ = {&ids, last.clone(),
               pool_.take(slot.cache.length(), [&](int64_t) { return target_.make_cache(slot.cache.capacity()); })};
    shared_.cache.copy(slot.cache);
    return last;
  }

  void step() {
    std::vector<Part> parts;
    for (auto& slot : slots_) parts.push_back({&slot->cache, slot->sequence.ids().last(1)});
    commit(target_.forward(parts).final_norm, 0);
  }

  // Rows of `final_norm` decide the next token of the slots from `first` on.
  void commit(const at::Tensor& final_norm, size_t first) {
    std::vector<Sequence*> sequences;
    for (size_t i = first; i < slots_.size(); ++i) sequences.push_back(&slots_[i]->sequence);
    const std::vector<int32_t> chosen = chooser_.choose(final_norm, sequences);
    for (size_t i = 0; i < sequences.size(); ++i)
      if (!sequences[i]->commit(chosen[i])) finish(*slots_[first + i]);
    std::erase_if(slots_, [](const std::unique_ptr<Slot>& slot) { return slot->sequence.finished(); });
  }

  void finish(Slot& slot) {
    const Completion completion = slot.sequence.completion();
    ++stats_.prompts;
    stats_.new_tokens += static_cast<int64_t>(completion.ids.size());
    pool_.give(std::move(slot.cache));
    done_(completion);
  }

  Target& target_;
  std::span<const Prompt> prompts_;
  const GenerateOptions& options_;
  const std::function<void(const Completion&)>& done_;
  Chooser chooser_;
  CachePool pool_;
  struct Shared {
    const std::vector<int32_t>* ids = nullptr;
    at::Tensor last;  // undefined: there is none
    Cache cache;
  } shared_;
  std::vector<std::unique_ptr<Slot>> slots_;
  size_t next_ = 0;
  GenerateStats stats_;
};

}  // namespace

std::string_view name_of(Finish finish) {
  return finish == Finish::kLength ? "length" : "stop";
}

void GenerateOptions::check() const {
  sampling.check();
  SF_CHECK(max_new_tokens >= 1, Exit::kConfig, "max_new_tokens must be 1 or more, found {}", max_new_tokens);
  SF_CHECK(batch >= 1, Exit::kConfig, "the batch must be 1 or more, found {}", batch);
  for (const std::string& text : stop_texts) SF_CHECK(!text.empty(), Exit::kConfig, "a stop text must not be empty");
  SF_ASSERT(stop_texts.empty() || tokenizer);
}

std::string text_of(const Completion& completion, const GenerateOptions& options, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids = completion.ids;
  if (completion.finish == Finish::kStop) ids.pop_back();
  std::string text = tokenizer.decode(ids, true);
  if (completion.finish != Finish::kStopText) return text;
  size_t end = text.size();
  for (const std::string& stop : options.stop_texts) end = std::min(end, text.find(stop));
  text.resize(end);
  return text;
}

GenerateStats generate(Target& target, std::span<const Prompt> prompts, const GenerateOptions& options,
                       const std::function<void(const Completion&)>& done) {
  options.check();
  return Generation(target, prompts, options, done).run();
}

}  // namespace sf::gen
