// SPDX-License-Identifier: Apache-2.0
#include "tool/open_adapter.h"

#include "arch/decoder.h"
#include "base/error.h"
#include "base/fault.h"
#include "ckpt/draft.h"
#include "ckpt/merge_record.h"

namespace sf::tool {
namespace {

// The first setting of adapter_config.json in which two differ, "r was 8, is 4"; empty if none.
std::string difference(const arch::Lora& was, const arch::Lora& is) {
  const Json before = arch::lora_to_config(was), now = arch::lora_to_config(is);
  for (const auto& [key, value] : before.as_object())
    if (now.at(key) != value) return fmt::format("{} was {}, is {}", key, value.dump(), now.at(key).dump());
  return {};
}

}  // namespace

std::optional<std::filesystem::path> adapter_option(const app::Invocation& invocation) {
  if (!invocation.has("adapter")) return std::nullopt;
  return invocation.get("adapter");
}

std::optional<ckpt::AdapterFiles> open_adapter(app::Invocation& invocation, const ckpt::Checkpoint& target,
                                               const std::optional<std::filesystem::path>& dir) {
  if (!dir) return std::nullopt;
  ckpt::AdapterFiles adapter =
      ckpt::AdapterFiles::open(*dir, arch::describe(arch::decoder_from_config(target.config())));
  ckpt::check_not_merged(adapter, target);
  if (adapter.files().has_manifest())
    ckpt::check_target(adapter.files(), target);
  else if (invocation.ranks().rank == 0)
    invocation.warn(fmt::format("{} has no manifest: that it was made for {} is taken on trust",
                                adapter.files().dir().string(), target.dir().string()));
  return adapter;
}

std::optional<ckpt::AdapterFiles> open_trained_adapter(app::Invocation& invocation, const ckpt::Checkpoint& target) {
  std::optional<ckpt::AdapterFiles> adapter = open_adapter(invocation, target, adapter_option(invocation));
  SF_CHECK(!adapter || adapter->lora().dropout == 0, Exit::kConfig,
           "{}: lora_dropout is {}: training without dropout only; set it to 0", invocation.get("adapter"),
           adapter ? adapter->lora().dropout : 0);
  return adapter;
}

void check_same_adapter(const ckpt::Checkpoint& before, const std::optional<ckpt::AdapterFiles>& adapter,
                        std::string_view dtype) {
  const std::string from = before.dir().string();
  const bool was = arch::is_adapter_config(before.config());
  SF_CHECK(was == adapter.has_value(), Exit::kConfig, "{} holds {}: go on from it with{}", from,
           was ? "an adapter" : "every parameter of a target",
           was ? " --adapter, the one that it began with" : "out --adapter");
  if (!was || fault("tool.any_adapter")) return;
  const std::string other = difference(arch::lora_from_config(before.config()), adapter->lora());
  SF_CHECK(other.empty(), Exit::kConfig, "{} is not the adapter that {} was trained from: its {}",
           adapter->files().dir().string(), from, other);
  const Json* training = before.manifest().config.find("training");
  const std::string kept = training ? training->get_string("adapter_dtype", "fp32") : "fp32";
  SF_CHECK(kept == dtype, Exit::kConfig, "{} was trained with training.adapter_dtype = \"{}\", now it is \"{}\"", from,
           kept, dtype);
  const Json& extra = before.manifest().extra;
  const std::string began = extra.is_object() ? extra.get_string(kBeganWith, "") : "",
                    ours = adapter->files().identity();
  SF_CHECK(began.empty() || began == ours, Exit::kProtocol,
           "{} goes on with the adapter that its run began with, {}; {} is {}", from, began,
           adapter->files().dir().string(), ours);
}

std::vector<arch::Adapter> adapters_in(const std::optional<ckpt::AdapterFiles>& adapter) {
  return adapter ? adapter->adapters() : std::vector<arch::Adapter>{};
}

}  // namespace sf::tool
