// SPDX-License-Identifier: Apache-2.0
// The loop's memory: what the plan says of the micro-batches seen so far beside what the allocator and the system say.
#include <algorithm>
#include <string_view>
#include <utility>

#include "plan/predict.h"
#include "tensor/memory.h"
#include "train/loop.h"

namespace sf::train {

// All micro-batches of a window are there before its first round; one at a time is worked on, and then gone.
void Loop::note_work(const std::vector<data::Batch>& batches, const std::vector<std::vector<int64_t>>& counts) {
  if (!options_.work_bytes) return;
  const uint64_t rest = engine_.predicted().at_rest + options_.constant_bytes;
  uint64_t inputs = 0, most = 0;
  for (size_t i = batches.size(); i-- > 0;) {
    for (const auto& [name, tensor] : batches[i].tensors) inputs += tensor.nbytes();
    bool works = !batches[i].empty() && objective_.trains(counts[i]);
    most = std::max(most, inputs + (works ? options_.work_bytes(batches[i].tensors) : 0));
  }
  const uint64_t copy = copied_ ? plan::checkpoint_bytes(engine_.schedule(), engine_.group().rank()) : 0;
  uint64_t peak = engine_.predicted().peak_allocated + options_.constant_bytes + most;
  memory_.peak_predicted = std::max({memory_.peak_predicted, peak, rest + options_.evaluation_bytes});
  memory_.resident_predicted = memory_.peak_predicted + options_.sample_bytes + copy;
}

void Loop::note_memory() {
  engine::MemoryReport predicted = engine_.predicted(), measured = engine_.measured();
  memory_.at_rest_predicted = predicted.at_rest;
  memory_.at_rest_measured = measured.at_rest;
  memory_.peak_measured = measured.peak_allocated;
  memory_.device_peak_measured = measured.device_peak;
  uint64_t resident = tensor::resident_bytes();
  uint64_t above = resident > options_.idle_bytes ? resident - options_.idle_bytes : 0;
  memory_.resident_measured = std::max(memory_.resident_measured, above);
}

std::vector<MemoryUse> Loop::memory_of_all() {
  comm::Group& group = engine_.group();
  std::vector<MemoryUse> all(static_cast<size_t>(group.world()));
  std::vector<size_t> bytes(all.size(), sizeof(MemoryUse));
  group.all_gather(std::as_bytes(std::span(&memory_, 1)), bytes, std::as_writable_bytes(std::span(all)),
                   {"memory of all ranks", deadline()});
  return all;
}

// A prediction of 0 is one that the plan does not make; on the CPU there is no device beside it.
void Loop::report_memory() {
  const std::pair<const char*, uint64_t> numbers[] = {{"memory_at_rest_predicted", memory_.at_rest_predicted},
                                                      {"memory_at_rest_measured", memory_.at_rest_measured},
                                                      {"memory_peak_predicted", memory_.peak_predicted},
                                                      {"memory_peak_measured", memory_.peak_measured},
                                                      {"memory_resident_predicted", memory_.resident_predicted},
                                                      {"memory_resident_measured", memory_.resident_measured},
                                                      {"memory_device_peak_measured", memory_.device_peak_measured}};
  for (auto [name, bytes] : numbers) {
    std::string_view kind(name);
    bool unknown = bytes == 0 && (kind.ends_with("_predicted") || kind.starts_with("memory_device"));
    if (!unknown) sink_->scalar(progress_.step, name, static_cast<double>(bytes));
  }
}

}  // namespace sf::train
