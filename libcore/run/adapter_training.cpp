// SPDX-License-Identifier: Apache-2.0
#include "run/adapter_training.h"

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "ckpt/draft.h"
#include "ops/optimizer_kernels.h"
#include "tool/open_adapter.h"

namespace sf::run {

void load_parameters(engine::Engine& engine, const arch::ModelSpec& spec, const ckpt::Checkpoint& target,
                     const ckpt::AdapterFiles* adapter, bool narrow) {
  for (const arch::Parameter& parameter : spec.parameters) {
    const ckpt::Checkpoint& files = adapter && parameter.trainable ? adapter->files() : target;
    SF_CHECK(files.contains(parameter.name) && files.info(parameter.name).shape == parameter.shape, Exit::kData,
             "{}: wanted {} {}, found {}", files.dir().string(), parameter.name, to_string(parameter.shape),
             files.contains(parameter.name) ? to_string(files.info(parameter.name).shape) : "nothing");
    engine.load(parameter.name, [&](int64_t lo, int64_t hi, std::span<float> to) {
      files.read(parameter.name, lo, hi, Dtype::kF32, std::as_writable_bytes(to));
      if (!narrow || !parameter.trainable) return;
      std::vector<uint16_t> rounded(to.size());
      ops::to_bf16(to, rounded);
      ops::from_bf16(rounded, to);
    });
  }
}

void as_adapter(const ckpt::Checkpoint& target, const text::ChatEncoder& encoder, const ckpt::AdapterFiles& adapter,
                train::CheckpointOptions& options) {
  options.model_config = adapter.files().config();
  ckpt::Manifest manifest;
  ckpt::set_target(manifest, {target.identity(),
                              encoder.tokenizer_digest(),
                              encoder.template_digest(),
                              std::filesystem::canonical(target.dir()).string(),
                              {}});
  options.extra = manifest.extra;
  options.extra.set(tool::kBeganWith, adapter.files().identity());
}

}  // namespace sf::run
