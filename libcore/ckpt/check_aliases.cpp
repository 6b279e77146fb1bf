// SPDX-License-Identifier: Apache-2.0
#include "ckpt/check_aliases.h"

#include <algorithm>
#include <optional>

#include "arch/decoder.h"
#include "arch/drafts.h"
#include "base/error.h"
#include "base/fault.h"

namespace sf::ckpt {
namespace {

// None of a configuration that describes no model known here: what reads it as one says why.
std::optional<arch::ModelSpec> described_by(const Json& config) {
  try {
    if (const arch::DraftFamily* family = arch::find_draft_family(config)) return family->describe(config);
    return arch::describe(arch::decoder_from_config(config));
  } catch (const Error&) {
    return std::nullopt;
  }
}

void check_against(const arch::ModelSpec& spec, const arch::Alias& alias, const Shape& stored, const std::string& dir) {
  const arch::Parameter *name = spec.find(spec.storage_of(alias.name)), *of = spec.find(spec.storage_of(alias.of));
  if (!name) return;
  SF_CHECK(name == of, Exit::kData,
           "{}: manifest.json records \"{}\" as another name of \"{}\", which are two tensors in the model that "
           "config.json describes",
           dir, alias.name, alias.of);
  SF_CHECK(name->shape == stored, Exit::kData,
           "{}: manifest.json records \"{}\" as another name of \"{}\", whose shape is {}, where config.json wants {}",
           dir, alias.name, alias.of, to_string(stored), to_string(name->shape));
}

}  // namespace

void check_aliases(const Checkpoint& files) {
  if (!files.has_manifest() || files.aliases().empty() || fault("ckpt.any_alias")) return;
  const std::vector<std::string> stored = files.names();
  const std::optional<arch::ModelSpec> spec = described_by(files.config());
  for (const arch::Alias& alias : files.aliases()) {
    SF_CHECK(!std::binary_search(stored.begin(), stored.end(), alias.name), Exit::kData,
             "{}: \"{}\" is stored, and manifest.json records it as another name of \"{}\": one of both is wrong",
             files.dir().string(), alias.name, alias.of);
    if (spec) check_against(*spec, alias, files.stored_place(alias.of).info.shape, files.dir().string());
  }
}

}  // namespace sf::ckpt
