// SPDX-License-Identifier: Apache-2.0
#include "tool/import_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "arch/adapter.h"
#include "arch/decoder.h"
#include "arch/drafts.h"
#include "arch/eagle3.h"
#include "base/error.h"
#include "base/file.h"
#include "base/present.h"
#include "ckpt/adapter.h"
#include "ckpt/as_published.h"
#include "ckpt/buffers.h"
#include "ckpt/draft.h"
#include "ckpt/merge_record.h"
#include "text/chat.h"
#include "tool/compare_values.h"
#include "tool/draft_files.h"
#include "tool/init_blocks.h"
#include "tool/init_model.h"
#include "tool/model_source.h"
#include "tool/names.h"
#include "tool/new_values.h"
#include "tool/non_finite.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

constexpr const char* kState = "training_state.pt";  // SpecForge's

fs::path state_in(const fs::path& source) {
  std::error_code ignored;
  return fs::exists(source / kState, ignored) ? source / kState : source;
}

// The draft's own name of a tensor, whoever saved it.
std::string plain_name(std::string name, std::string_view family) {
  for (std::string_view prefix : {"draft_state_dict/", "module.", "draft_model.", "model."})
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  if (family == "eagle3" && name.starts_with("layers.0.")) name.replace(0, 9, "midlayer.");
  return name;
}

TensorSet open_draft(const ImportOptions& options) {
  TensorSet set = open_published(state_in(options.source));
  bool state = std::any_of(set.tensors.begin(), set.tensors.end(),
                           [](const auto& t) { return t.name.starts_with("draft_state_dict/"); });
  // Beside the draft a training state holds random number generators and the like.
  if (state) std::erase_if(set.tensors, [](const auto& t) { return !t.name.starts_with("draft_state_dict/"); });
  if (!options.draft_config.empty())
    set.config = Json::parse(read_file(options.draft_config), options.draft_config.string());
  SF_CHECK(set.config.is_object(), Exit::kUsage, "{} has no config.json: give the draft's with --draft-config",
           options.source.string());
  std::string_view family = arch::draft_family(set.config).name;
  for (StoredTensor& tensor : set.tensors) tensor.name = plain_name(tensor.name, family);
  std::sort(set.tensors.begin(), set.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (size_t i = 1; i < set.tensors.size(); ++i)
    SF_CHECK(set.tensors[i - 1].name != set.tensors[i].name, Exit::kData, "{}: two tensors mean \"{}\"",
             options.source.string(), set.tensors[i].name);
  return set;
}

// The draft's embedding must be the target's: our drafts take it from there. Removes it from `set`. Another one is left
// by a warm start.
void drop_embedding(TensorSet& set, const std::string& name, const std::string& of, const TensorSet& target,
                    Taken* warm) {
  const StoredTensor* own = set.stored(name);
  if (!own) return;
  const StoredTensor* theirs = target.find(of);
  const bool same = theirs && theirs->shape == own->shape && compare_values(*own, *theirs, std::nullopt).differ == 0;
  SF_CHECK(same || warm, Exit::kData,
           "{}: \"{}\" is not the \"{}\" of {}: a draft with an embedding of its own is not supported",
           set.path.string(), name, of, target.path.string());
  if (warm) warm->left[name] = same ? "the target's is read" : "not the target's, which is read";
  std::erase_if(set.tensors, [&](const auto& t) { return t.name == name; });
}

template <typename T>
std::vector<T> values_of(const StoredTensor& tensor) {
  std::vector<T> values(static_cast<size_t>(numel(tensor.shape)));
  std::byte* to = std::as_writable_bytes(std::span(values)).data();
  tensor.stream([&](const ckpt::Piece& piece) { to = std::copy(piece.bytes.begin(), piece.bytes.end(), to); });
  return values;
}

struct VocabBuffers {
  std::vector<int64_t> d2t;
  std::vector<uint8_t> t2d;
};

// As stored; what is absent follows from the other, or from a vocabulary that is the target's. Contradictions: kData.
VocabBuffers vocabulary(const TensorSet& set) {
  struct {
    int64_t vocab, draft_vocab;
  } draft{set.config.at("vocab_size").as_int(), set.config.at("draft_vocab_size").as_int()};
  VocabBuffers out{std::vector<int64_t>(static_cast<size_t>(draft.draft_vocab)),
                   std::vector<uint8_t>(static_cast<size_t>(draft.vocab))};
  const StoredTensor *d2t = set.stored("d2t"), *t2d = set.stored("t2d");
  SF_CHECK(d2t || draft.draft_vocab == draft.vocab, Exit::kData,
           "{}: d2t is missing, and the draft proposes {} of {} tokens: which?", set.path.string(), draft.draft_vocab,
           draft.vocab);
  if (d2t) {
    SF_CHECK(d2t->dtype == Dtype::kI64 && d2t->shape == Shape{draft.draft_vocab}, Exit::kData,
             "{}: d2t is {} {}, wanted I64 [{}]", set.path.string(), d2t->type, to_string(d2t->shape),
             draft.draft_vocab);
    out.d2t = values_of<int64_t>(*d2t);
  }
  for (size_t i = 0; i < out.d2t.size(); ++i) {
    int64_t id = 0;
    bool wild = __builtin_add_overflow(static_cast<int64_t>(i), out.d2t[i], &id) || id < 0 || id >= draft.vocab;
    SF_CHECK(!wild, Exit::kData, "{}: d2t[{}] = {} leaves the vocabulary of {}", set.path.string(), i, out.d2t[i],
             draft.vocab);
    out.t2d[static_cast<size_t>(id)] = 1;
  }
  if (t2d) {
    SF_CHECK((t2d->dtype == Dtype::kBool || t2d->dtype == Dtype::kU8) && t2d->shape == Shape{draft.vocab}, Exit::kData,
             "{}: t2d is {} {}, wanted BOOL [{}]", set.path.string(), t2d->type, to_string(t2d->shape), draft.vocab);
    out.t2d = values_of<uint8_t>(*t2d);
  }
  arch::vocab_map_from(out.d2t, out.t2d);
  return out;
}

// With `warm` what is missing or left over is noted there.
void check_tensors(const TensorSet& set, const arch::ModelSpec& spec, Taken* warm) {
  arch::ModelSpec own = spec;
  std::erase_if(own.parameters, [](const auto& p) { return !p.trainable; });
  std::erase_if(own.buffers, [](const auto& b) { return b.stored; });
  NameCheck check = check_names(set, own);
  std::erase_if(check.unexpected, [](const std::string& name) { return name == "d2t" || name == "t2d"; });
  std::vector<std::string> faults;
  auto say = [&](const std::vector<std::string>& names, std::string_view what) {
    if (!names.empty()) faults.push_back(fmt::format("{} {}: {}", names.size(), what, listed(names)));
  };
  if (!warm) say(check.missing, "tensors that the draft needs are missing");
  say(check.misshapen, "have another shape than config.json's");
  if (!warm) say(check.unexpected, "have no place in the draft");
  SF_CHECK(faults.empty(), Exit::kData, "{}: {}", set.path.string(), fmt::join(faults, "; "));
  if (!warm) return;
  for (const std::string& name : check.unexpected) warm->left[name] = "no place in the draft";
  for (const std::string& name : check.missing) warm->missing[name] = spec.find(name)->init;
  for (const arch::Parameter& p : own.parameters)
    if (!warm->missing.contains(p.name)) warm->taken.push_back(p.name);
  SF_CHECK(!warm->taken.empty(), Exit::kData, "{} holds no tensor of such a draft", set.path.string());
}

ckpt::TargetLink link_to(const ckpt::Checkpoint& target) {
  text::ChatEncoder encoder = text::ChatEncoder::open(target.dir());
  return {target.identity(),
          encoder.tokenizer_digest(),
          encoder.template_digest(),
          fs::canonical(target.dir()).string(),
          {}};
}

ckpt::Manifest manifest_of(const TensorSet& set, const ckpt::Checkpoint& target, const arch::ModelSpec& spec) {
  ckpt::Manifest manifest;
  manifest.kind = "draft";
  ckpt::TargetLink link = link_to(target);
  link.taken = taken_of(set.config, arch::decoder_from_config(target.config()));
  manifest.buffers = ckpt::buffer_records(spec);
  manifest.extra.set("algorithm", arch::draft_family(set.config).name);
  Json source =
      Json::object().set("format", set.kind).set("name", fs::absolute(set.path).lexically_normal().filename().string());
  if (set.metadata.is_object())
    if (const Json* step = set.metadata.find("global_step")) source.set("step", *step);
  manifest.extra.set("source", std::move(source));
  ckpt::set_target(manifest, link);
  return manifest;
}

// What a config of SpecForge leaves to the target: which layers are read, the token of what is masked.
void complete(Json& config, const arch::Decoder& target, const ImportOptions& options) {
  const arch::DraftFamily& family = arch::draft_family(config);
  if (!family.blocks) {
    std::vector<int64_t> layers = family.input(config).layers;
    if (std::any_of(layers.begin(), layers.end(), [](int64_t layer) { return layer > 0; })) return;
    arch::Eagle3 usual = arch::eagle3_for_target(target, config.at("draft_vocab_size").as_int());
    config.set("eagle_config", arch::eagle3_to_config(usual).at("eagle_config"));
    return;
  }
  if (!config.contains("num_target_layers")) config.set("num_target_layers", target.layers);
  if (family.blocks(config).mask_token >= 0) return;
  text::ChatEncoder encoder = text::ChatEncoder::open(options.target);
  const Json* found = config.find("dflash_config");
  Json own = found && found->is_object() ? *found : Json::object();
  config.set("dflash_config", own.set("mask_token_id", choose_mask_token(-1, encoder, target, options.report)));
}

// All that is checked and known before the first write.
struct Import {
  std::vector<ckpt::TensorSource> tensors;
  Json config;
  ckpt::Manifest manifest;
  std::optional<ckpt::Checkpoint> source;          // where it is one
  std::shared_ptr<const ckpt::Checkpoint> target;  // that new values are made of
};

// A parameter that the source lacks. `target` outlives it.
ckpt::TensorSource begun_anew(const arch::Parameter& p, const ImportOptions& options, const ckpt::Checkpoint& target,
                              const std::vector<int64_t>& rows) {
  const Dtype as = options.dtype.value_or(Dtype::kF32);
  const Start start{p.name, p.init, p.shape, options.warm->seed};
  return {p.name, as, p.shape, [=, &target](const Sink& sink) { write_start(start, target, rows, as, sink); }};
}

// The target's ids that a draft's vocabulary means.
std::vector<int64_t> rows_of(const std::vector<int64_t>& d2t) {
  std::vector<int64_t> rows(d2t);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] += static_cast<int64_t>(i);
  return rows;
}

Import prepare_draft(const ImportOptions& options) {
  SF_CHECK(!options.target.empty(), Exit::kUsage, "a draft belongs to a target: give its checkpoint with --target");
  TensorSet set = open_draft(options), target = open_published(options.target);
  SF_CHECK(target.checkpoint, Exit::kData, "{} is no checkpoint directory", options.target.string());
  if (options.warm) set.config = grown(set.config, *options.warm);
  const arch::DraftFamily& family = arch::draft_family(set.config);
  arch::Decoder decoder = arch::decoder_from_config(target.config);
  complete(set.config, decoder, options);
  arch::DraftInput input = family.input(set.config);
  SF_CHECK(input.vocab == decoder.vocab && input.hidden == decoder.hidden, Exit::kProtocol,
           "{} is a draft for a vocabulary of {} and states of {}, {} has {} and {}", options.source.string(),
           input.vocab, input.hidden, options.target.string(), decoder.vocab, decoder.hidden);
  arch::ModelSpec spec = family.describe(set.config);
  Taken taken, *warm = options.warm ? &taken : nullptr;
  for (const arch::Parameter& p : spec.parameters)
    if (!p.trainable) drop_embedding(set, p.name, p.init.substr(p.init.find(':') + 1), target, warm);
  check_tensors(set, spec, warm);
  const VocabBuffers words = family.blocks ? VocabBuffers() : vocabulary(set);
  auto base = std::make_shared<const ckpt::Checkpoint>(*target.checkpoint);
  std::vector<ckpt::TensorSource> tensors;
  for (const arch::Parameter& p : spec.parameters) {
    if (!p.trainable) continue;
    const StoredTensor* from = set.stored(p.name);
    tensors.push_back(from ? converted(*from, p.name, options.dtype.value_or(from->dtype.value_or(Dtype::kF32)))
                           : begun_anew(p, options, *base, rows_of(words.d2t)));
  }
  Json config = family.rewrite(set.config, tensors.front().dtype);
  auto bytes = [](auto values) {
    return
        [values = std::move(values)](const ckpt::TensorSource::Sink& sink) { sink(std::as_bytes(std::span(values))); };
  };
  if (!family.blocks) {
    tensors.push_back({"d2t", Dtype::kI64, {std::ssize(words.d2t)}, bytes(words.d2t)});
    tensors.push_back({"t2d", Dtype::kBool, {std::ssize(words.t2d)}, bytes(words.t2d)});
  }
  ckpt::Manifest manifest = manifest_of(set, *base, spec);
  if (warm) {
    const std::string source = fs::absolute(options.source).lexically_normal().filename().string();
    tell(taken, source, options.report);
    manifest.extra.set("warm_start", to_json(taken, source));
    manifest.seed = options.warm->seed;
  }
  return {std::move(tensors), std::move(config), std::move(manifest), set.checkpoint, std::move(base)};
}

Import prepare_adapter(const ImportOptions& options) {
  SF_CHECK(!options.target.empty(), Exit::kUsage, "{} is an adapter: give its target's checkpoint with --target",
           options.source.string());
  ckpt::Checkpoint target = ckpt::Checkpoint::open(options.target);
  ckpt::AdapterFiles adapter =
      ckpt::AdapterFiles::open(options.source, arch::describe(arch::decoder_from_config(target.config())));
  ckpt::check_not_merged(adapter, target);
  TensorSet set = open_tensors(options.source);
  std::vector<ckpt::TensorSource> tensors;
  for (const std::string& name : adapter.files().names()) {
    const StoredTensor& from = *set.stored(name);
    tensors.push_back(converted(from, name, options.dtype.value_or(from.dtype.value_or(Dtype::kF32))));
  }
  ckpt::Manifest manifest;
  manifest.kind = "adapter";
  ckpt::set_target(manifest, link_to(target));
  options.report.say(fmt::format("{} adapted parameters, each with its A and B", adapter.adapters().size()));
  return {std::move(tensors), adapter.files().config(), std::move(manifest), set.checkpoint, nullptr};
}

bool is_adapter(const fs::path& source) {
  return is_present(source / "adapter_config.json") && !is_present(source / "config.json");
}

bool is_draft(const ImportOptions& options) {
  if (!options.draft_config.empty() || !options.target.empty()) return true;
  std::error_code ignored;
  fs::path config = options.source / "config.json";
  if (!is_present(config)) return !fs::is_directory(options.source, ignored);
  return arch::find_draft_family(Json::parse(read_file(config), config.string())) != nullptr;
}

bool is_model(const ImportOptions& options) {
  std::error_code ignored;
  SF_CHECK(fs::exists(options.source, ignored), Exit::kNoInput, "{}: no such file or directory",
           options.source.string());
  return !is_adapter(options.source) && !is_draft(options);
}

Import prepare(const ImportOptions& options) {
  return is_adapter(options.source) ? prepare_adapter(options) : prepare_draft(options);
}

InitModelOptions as_model(const ImportOptions& options) {
  return {.source = options.source, .out = options.out, .dtype = options.dtype, .report = options.report};
}

}  // namespace

fs::path import_model(const ImportOptions& options) {
  if (is_model(options)) return init_model(as_model(options));
  Import ready = prepare(options);
  report_writing(ready.tensors, options.report);
  NonFinite bad;
  bad.watch(ready.tensors);
  ckpt::Publisher publisher(options.out);
  fs::path published = publisher.commit(ready.tensors, ready.config, ready.manifest);
  bad.warn(options.report);
  return published;
}

Json plan_import(const ImportOptions& options) {
  if (is_model(options)) {
    const Json plan = plan_model(as_model(options));
    if (std::optional<ckpt::Checkpoint> source = open_published(options.source).checkpoint) ckpt::check_whole(*source);
    return would_publish(options.out, static_cast<uint64_t>(plan.at("bytes").as_int()));
  }
  const Import ready = prepare(options);
  if (ready.source) ckpt::check_whole(*ready.source);
  return would_publish(options.out, bytes_of(ready.tensors));
}

}  // namespace sf::tool
