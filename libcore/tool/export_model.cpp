// SPDX-License-Identifier: Apache-2.0
#include "tool/export_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "arch/adapter.h"
#include "arch/decoder.h"
#include "arch/drafts.h"
#include "base/error.h"
#include "ckpt/as_published.h"
#include "ckpt/draft.h"
#include "tool/compare_values.h"
#include "tool/fused_experts.h"
#include "tool/model_source.h"
#include "tool/names.h"
#include "tool/non_finite.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

// What is written: each tensor with where its values come from, so that the proof can ask again.
struct Outgoing {
  std::vector<ckpt::TensorSource> tensors;
  std::map<std::string, StoredTensor> origin;  // name in the export -> stored tensor
  Json config;
  std::function<void(const Json& config)> check_config;  // throws if it does not say what the checkpoint's did
};

void add(Outgoing& out, const StoredTensor& from, const std::string& name, std::optional<Dtype> dtype) {
  out.origin.emplace(name, from);
  bool buffer = from.dtype == Dtype::kI64 || from.dtype == Dtype::kBool || from.dtype == Dtype::kU8;
  if (buffer)
    out.tensors.push_back({name, *from.dtype, from.shape, [from](const auto& sink) { from.stream(sink); }});
  else
    out.tensors.push_back(converted(from, name, dtype.value_or(from.dtype.value_or(Dtype::kF32))));
}

// In the shape that the model's description gives it: what is read back is compared with this one.
const StoredTensor& wanted(const TensorSet& set, const std::string& name, const Shape& shape) {
  const StoredTensor* found = set.find(name);
  SF_CHECK(found, Exit::kData, "{}: tensor \"{}\" is missing", set.path.string(), name);
  SF_CHECK(found->shape == shape, Exit::kData, "{}: tensor \"{}\" is {}, config.json wants {}", set.path.string(), name,
           to_string(found->shape), to_string(shape));
  return *found;
}

void check_rope(const Json& config) {
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"})
    SF_CHECK(config.contains(key), Exit::kSoftware, "config.json lacks \"{}\": readers of one schema would miss it",
             key);
}

Outgoing outgoing_model(const TensorSet& set, const ExportOptions& options) {
  arch::Decoder decoder = arch::decoder_from_config(set.config);
  arch::ModelSpec spec = arch::describe(decoder);
  Outgoing out;
  for (const arch::Parameter& p : spec.parameters) {
    const StoredTensor& tensor = wanted(set, p.name, p.shape);
    if (!is_fused(tensor)) {
      add(out, tensor, p.name, options.dtype);
      continue;
    }
    for (const StoredTensor& part : split_experts(tensor)) add(out, part, part.name, options.dtype);
  }
  decoder.stored = out.tensors.front().dtype;
  out.config = set.config;
  const Json ours = arch::decoder_to_config(decoder);
  for (const auto& [key, value] : ours.as_object()) out.config.set(key, value);
  out.check_config = [decoder](const Json& config) {
    SF_CHECK(arch::decoder_from_config(config) == decoder, Exit::kSoftware, "config.json reads back as another model");
    check_rope(config);
  };
  return out;
}

ckpt::Checkpoint open_target(const ckpt::Checkpoint& draft, const ExportOptions& options) {
  fs::path path = options.target.empty() ? fs::path(ckpt::target_of(draft).path) : options.target;
  std::error_code ignored;
  SF_CHECK(options.target.empty() || fs::exists(path, ignored), Exit::kNoInput, "--target {}: no such directory",
           path.string());
  SF_CHECK(!path.empty() && fs::exists(path, ignored), Exit::kNoInput,
           "--to hf stores the target's embedding beside the draft: give its checkpoint with --target");
  ckpt::Checkpoint target = ckpt::Checkpoint::open(path);
  ckpt::check_target(draft, target);
  return target;
}

std::string name_for(const std::string& to, const std::string& name) {
  constexpr std::string_view kBlock = "midlayer.";
  return to == "vllm" && name.starts_with(kBlock) ? "layers.0." + name.substr(kBlock.size()) : name;
}

Dtype stored_type(const TensorSet& draft) {
  const StoredTensor* found = draft.find("fc.weight");
  SF_CHECK(found, Exit::kData, "{}: tensor \"fc.weight\" is missing", draft.path.string());
  return found->dtype.value_or(Dtype::kF32);
}

Outgoing outgoing_draft(const TensorSet& set, const ExportOptions& options) {
  const arch::DraftFamily& family = arch::draft_family(set.config);
  arch::ModelSpec spec = family.describe(set.config);
  std::vector<int64_t> layers = family.input(set.config).layers;
  SF_CHECK(std::any_of(layers.begin(), layers.end(), [](int64_t layer) { return layer > 0; }), Exit::kConfig,
           "{}: config.json does not say which layers the draft reads", set.path.string());
  if (!options.target.empty()) open_target(*set.checkpoint, options);  // another's is refused, whoever is to load it
  Outgoing out;
  Dtype stored = options.dtype.value_or(stored_type(set));
  for (const arch::Parameter& p : spec.parameters) {
    if (p.trainable) {
      add(out, wanted(set, p.name, p.shape), name_for(options.to, p.name), options.dtype);
    } else if (options.to == "hf") {
      TensorSet target = open_published(open_target(*set.checkpoint, options).dir());
      add(out, wanted(target, ckpt::target_of(*set.checkpoint).taken.at(p.name), p.shape), p.name, stored);
    }
  }
  for (const arch::Buffer& b : spec.buffers)
    if (b.stored && !(options.to == "vllm" && b.name == "t2d")) add(out, wanted(set, b.name, b.shape), b.name, {});
  out.config = family.rewrite(set.config, stored);
  out.check_config = [&family, stored, wanted = out.config.dump()](const Json& config) {
    SF_CHECK(family.rewrite(config, stored).dump() == wanted, Exit::kSoftware,
             "config.json reads back as another draft");
    check_rope(config);
  };
  return out;
}

// An adapter's files are PEFT's already; a run's moments stay behind.
Outgoing outgoing_adapter(const TensorSet& set, const ExportOptions& options) {
  SF_CHECK(options.to != "hf", Exit::kUsage, "{} is an adapter: export it --to peft, or sf-shard merge it first",
           set.path.string());
  arch::Lora lora = arch::lora_from_config(set.config);
  Outgoing out;
  for (const std::string& name : set.checkpoint->names()) add(out, *set.stored(name), name, options.dtype);
  out.config = set.config;
  out.check_config = [lora](const Json& config) {
    SF_CHECK(arch::lora_from_config(config) == lora, Exit::kSoftware,
             "adapter_config.json reads back as another adapter");
  };
  return out;
}

Outgoing outgoing(const TensorSet& set, const ExportOptions& options) {
  if (arch::is_adapter_config(set.config)) return outgoing_adapter(set, options);
  SF_CHECK(options.to != "peft", Exit::kUsage, "{} is no adapter: --to peft takes only those", set.path.string());
  return arch::find_draft_family(set.config) ? outgoing_draft(set, options) : outgoing_model(set, options);
}

// The keys a server asks for, and none it would stumble over.
void prove_draft_keys(const TensorSet& found, const std::string& to) {
  const arch::DraftFamily& family = arch::draft_family(found.config);
  for (const char* name : {"fc.weight", "norm.weight"})
    SF_CHECK(found.stored(name), Exit::kSoftware, "the export lacks \"{}\"", name);
  for (const char* name : {"lm_head.weight", "d2t"})
    SF_CHECK((found.stored(name) == nullptr) == (family.blocks != nullptr), Exit::kSoftware,
             "\"{}\" is out of place in a {} draft", name, family.name);
  bool marks = !family.blocks && to != "vllm";
  SF_CHECK(marks == (found.stored("t2d") != nullptr), Exit::kSoftware, "t2d is out of place in --to {}", to);
  for (const arch::Parameter& p : family.describe(found.config).parameters)
    SF_CHECK(to == "hf" || p.trainable || !found.stored(p.name), Exit::kSoftware,
             "\"{}\" is the target's, and --to {} takes it from there", p.name, to);
  for (const StoredTensor& tensor : found.tensors)
    SF_CHECK(!tensor.name.starts_with("draft_model."), Exit::kSoftware, "\"{}\" keeps a trainer's prefix", tensor.name);
}

void prove(const fs::path& dir, const Outgoing& out) {
  TensorSet found = open_tensors(dir);
  out.check_config(found.config);
  std::set<std::string> names;
  for (const StoredTensor& tensor : found.tensors) {
    names.insert(tensor.name);
    auto from = out.origin.find(tensor.name);
    SF_CHECK(from != out.origin.end(), Exit::kSoftware, "the export holds \"{}\", which nobody asked for", tensor.name);
    SF_CHECK(from->second.shape == tensor.shape, Exit::kSoftware, "\"{}\" changed its shape", tensor.name);
    Compared values = compare_values(from->second, tensor, std::nullopt);
    SF_CHECK(values.differ == 0, Exit::kIo, "\"{}\" read back differs in {} of {} values", tensor.name, values.differ,
             values.elements);
  }
  for (const auto& [name, from] : out.origin)
    SF_CHECK(names.contains(name), Exit::kSoftware, "the export lacks \"{}\"", name);
}

// All that is checked and known before the first write.
struct Export {
  TensorSet set;
  Outgoing out;
  bool draft = false;
};

Export prepare(const ExportOptions& options) {
  TensorSet set = open_published(options.checkpoint);
  SF_CHECK(set.checkpoint, Exit::kData, "{} is no checkpoint directory", options.checkpoint.string());
  const bool draft = arch::find_draft_family(set.config) != nullptr;
  SF_CHECK(draft || options.target.empty(), Exit::kUsage,
           "--target {} names the target of a draft, and {} is {}; leave it out", options.target.string(),
           options.checkpoint.string(), arch::is_adapter_config(set.config) ? "an adapter" : "a model");
  Outgoing out = outgoing(set, options);
  return {std::move(set), std::move(out), draft};
}

}  // namespace

fs::path export_model(const ExportOptions& options) {
  auto [set, out, draft] = prepare(options);
  report_writing(out.tensors, options.report);
  NonFinite bad;
  bad.watch(out.tensors);
  ckpt::Publisher publisher(options.out);
  if (!draft && !arch::is_adapter_config(set.config)) copy_side_files(options.checkpoint, publisher.dir());
  std::map<std::string, std::string> metadata;
  if (std::string identity = set.checkpoint->manifest().identity; !identity.empty())
    metadata = {{"shardforge_identity", identity},
                {"shardforge_step", std::to_string(set.checkpoint->manifest().step)}};
  fs::path published =
      publisher.commit_plain(out.tensors, out.config, metadata, [&, &out = out, draft = draft](const fs::path& dir) {
        prove(dir, out);
        if (draft) prove_draft_keys(open_tensors(dir), options.to);
      });
  bad.warn(options.report);
  options.report.say(
      fmt::format("{} tensors read back and proved: names, shapes, values, configuration", out.origin.size()));
  return published;
}

Json plan_export(const ExportOptions& options) {
  const Export ready = prepare(options);
  ckpt::check_whole(*ready.set.checkpoint);
  return would_publish(options.out, bytes_of(ready.out.tensors));
}

}  // namespace sf::tool
