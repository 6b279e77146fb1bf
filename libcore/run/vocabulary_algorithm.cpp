// SPDX-License-Identifier: Apache-2.0
#include "run/vocabulary_algorithm.h"

#include <algorithm>

#include "tensor/convert.h"

namespace sf::run {

VocabularyAlgorithm::VocabularyAlgorithm(const DraftFiles& draft, int64_t width)
    : target_(draft.target), width_(width) {
  ckpt::read_vocab_map(draft.files);
  for (const char* name : {"t2d", "d2t"}) buffers_.push_back({name, HostTensor::copy_of(draft.files.view(name))});
  vocabulary_.t2d = tensor::copy(buffers_[0].tensor.view()).to(at::kBool);
  vocabulary_.d2t = tensor::copy(buffers_[1].tensor.view());
}

std::optional<engine::Engine::ReadInterval> VocabularyAlgorithm::reader(const std::string& parameter) const {
  if (parameter != arch::kTargetHead) return std::nullopt;
  std::span<const int64_t> offsets = buffers_[1].tensor.as<int64_t>();
  return [this, offsets](int64_t lo, int64_t hi, std::span<float> to) {
    for (int64_t at = lo; at < hi;) {
      int64_t row = at / width_, column = at % width_, count = std::min(width_ - column, hi - at);
      int64_t start = (row + offsets[static_cast<size_t>(row)]) * width_ + column;
      target_.read("lm_head.weight", start, start + count, Dtype::kF32,
                   std::as_writable_bytes(to.subspan(static_cast<size_t>(at - lo), static_cast<size_t>(count))));
      at += count;
    }
  };
}

}  // namespace sf::run
