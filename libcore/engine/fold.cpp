// SPDX-License-Identifier: Apache-2.0
// From the gradients of one segment to the window's: rank-major, what each rank owns together; folded in global order.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "engine/state.h"
#include "ops/optimizer_kernels.h"

namespace sf::engine {
namespace {

constexpr size_t kPiece = size_t{1} << 14;  // elements

}  // namespace

// What the ranks exchange is read from the gradients themselves: no packed copy, whatever the group's size.
void Engine::State::fold(size_t g, std::optional<std::vector<at::Tensor>> gradients) {
  bool present = gradients.has_value();
  wait(folds_[0]);
  std::vector<FoldPart> parts;
  if (present) parts = fold_parts(g, std::move(*gradients));
  has_sums_ |= present;
  if (!plan.folds_each_round()) {
    if (present) add_up(store.sum(g), parts);
    return;
  }
  folds_[0] = folds_[1];
  auto held = std::make_shared<const std::vector<FoldPart>>(std::move(parts));
  folds_[1] = post("fold " + plan.groups[g].name, [this, g, present, held](const comm::Call& call) {
    auto give = [&](size_t from, std::span<float> to) {
      auto after = [](size_t at, const FoldPart& part) { return at < part.at; };
      for (auto part = std::upper_bound(held->begin(), held->end(), from, after) - 1; !to.empty(); ++part) {
        std::span<float> piece = to.first(std::min(to.size(), part->at + part->size - from));
        copy_piece(*part, from - part->at, piece, false);
        from += piece.size();
        to = to.subspan(piece.size());
      }
    };
    group.reduce_given(give, present, plan.groups[g].fold_offsets, store.accumulators(g), call);
  });
}

std::vector<Engine::State::FoldPart> Engine::State::fold_parts(size_t g, std::vector<at::Tensor> gradients) {
  const std::vector<size_t>& parameters = store.trainable_members(g);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!gradients[i].defined()) continue;
    gradients[i] = gradients[i].contiguous();
    ++uses_[parameters[i]];
  }
  std::vector<FoldPart> parts;
  size_t at = 0;
  for (size_t r = 0; r < static_cast<size_t>(plan.options.world); ++r) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const plan::Interval& owned = plan.parameters[parameters[i]].owned[r];
      if (owned.empty()) continue;
      auto size = static_cast<size_t>(owned.size());
      parts.push_back({parameters[i], at, size, static_cast<size_t>(owned.lo), gradients[i]});
      at += size;
    }
  }
  return parts;
}

// In pieces that stay in the cache between being read and being checked.
void Engine::State::add_up(std::span<float> sum, std::span<const FoldPart> parts) {
  for (const FoldPart& part : parts) {
    for (size_t at = 0; at < part.size && part.gradient.defined(); at += kPiece)
      copy_piece(part, at, sum.subspan(part.at + at, std::min(kPiece, part.size - at)), true);
  }
}

// Elements [from, from + to.size()) of a part, as fp32, written or added; the first element that is not finite is told.
void Engine::State::copy_piece(const FoldPart& part, size_t from, std::span<float> to, bool adds) {
  if (!part.gradient.defined()) {
    std::memset(to.data(), 0, to.size_bytes());
    return;
  }
  bool finite = true;
  if (part.gradient.scalar_type() == at::kBFloat16) {
    std::span source(static_cast<const uint16_t*>(part.gradient.const_data_ptr()) + part.from + from, to.size());
    adds ? ops::fold_add_bf16(to, source) : ops::from_bf16(source, to);
    finite = !ops::first_non_finite(to);
  } else {
    std::span source(part.gradient.const_data_ptr<float>() + part.from + from, to.size());
    adds ? ops::fold_add(to, source) : void(std::memcpy(to.data(), source.data(), source.size_bytes()));
    finite = !ops::first_non_finite(source);
  }
  if (!finite) note_non_finite(part.parameter);
}

void Engine::State::note_non_finite(size_t parameter) {
  Culprit now{round_ * group.world() + group.rank(), static_cast<int64_t>(parameter), group.rank()};
  culprit_ = std::min(culprit_, now);
}

}  // namespace sf::engine
