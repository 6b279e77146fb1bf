// SPDX-License-Identifier: Apache-2.0
#include "tool/import_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "arch/eagle3.h"
#include "base/error.h"
#include "base/file.h"
#include "base/present.h"
#include "ckpt/draft.h"
#include "text/chat.h"
#include "tool/compare_values.h"
#include "tool/init_model.h"
#include "tool/model_source.h"
#include "tool/names.h"

namespace sf::tool {
namespace fs = std::filesystem;
namespace {

constexpr const char* kState = "training_state.pt";  // SpecForge's

fs::path state_in(const fs::path& source) {
  std::error_code ignored;
  return fs::exists(source / kState, ignored) ? source / kState : source;
}

// The draft's own name of a tensor, whoever saved it.
std::string plain_name(std::string name) {
  for (std::string_view prefix : {"draft_state_dict/", "module.", "draft_model.", "model."})
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  if (name.starts_with("layers.0.")) name.replace(0, 9, "midlayer.");
  return name;
}

TensorSet open_draft(const ImportOptions& options) {
  TensorSet set = open_tensors(state_in(options.source));
  bool state = std::any_of(set.tensors.begin(), set.tensors.end(),
                           [](const auto& t) { return t.name.starts_with("draft_state_dict/"); });
  // Beside the draft a training state holds random number generators and the like.
  if (state) std::erase_if(set.tensors, [](const auto& t) { return !t.name.starts_with("draft_state_dict/"); });
  for (StoredTensor& tensor : set.tensors) tensor.name = plain_name(tensor.name);
  std::sort(set.tensors.begin(), set.tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (size_t i = 1; i < set.tensors.size(); ++i)
    SF_CHECK(set.tensors[i - 1].name != set.tensors[i].name, Exit::kData, "{}: two tensors mean \"{}\"",
             options.source.string(), set.tensors[i].name);
  if (!options.draft_config.empty())
    set.config = Json::parse(read_file(options.draft_config), options.draft_config.string());
  SF_CHECK(set.config.is_object(), Exit::kUsage, "{} has no config.json: give the draft's with --draft-config",
           options.source.string());
  return set;
}

// The draft's embedding must be the target's: our drafts take it from there. Removes it from `set`.
void drop_embedding(TensorSet& set, const std::string& name, const std::string& of, const TensorSet& target) {
  const StoredTensor* own = set.stored(name);
  if (!own) return;
  const StoredTensor* theirs = target.find(of);
  SF_CHECK(theirs && theirs->shape == own->shape && compare_values(*own, *theirs, std::nullopt).differ == 0,
           Exit::kData, "{}: \"{}\" is not the \"{}\" of {}: a draft with an embedding of its own is not supported",
           set.path.string(), name, of, target.path.string());
  std::erase_if(set.tensors, [&](const auto& t) { return t.name == name; });
}

template <typename T>
std::vector<T> values_of(const StoredTensor& tensor) {
  std::vector<T> values(static_cast<size_t>(numel(tensor.shape)));
  tensor.read(0, std::as_writable_bytes(std::span(values)));
  return values;
}

struct VocabBuffers {
  std::vector<int64_t> d2t;
  std::vector<uint8_t> t2d;
};

// As stored; what is absent follows from the other, or from a vocabulary that is the target's. Contradictions: kData.
VocabBuffers vocabulary(const TensorSet& set, const arch::Eagle3& draft) {
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

void check_tensors(const TensorSet& set, const arch::ModelSpec& spec) {
  arch::ModelSpec own = spec;
  std::erase_if(own.parameters, [](const auto& p) { return !p.trainable; });
  std::erase_if(own.buffers, [](const auto& b) { return b.stored; });
  NameCheck check = check_names(set, own);
  std::erase_if(check.unexpected, [](const std::string& name) { return name == "d2t" || name == "t2d"; });
  std::vector<std::string> faults;
  auto say = [&](const std::vector<std::string>& names, std::string_view what) {
    if (!names.empty()) faults.push_back(fmt::format("{} {}: {}", names.size(), what, listed(names)));
  };
  say(check.missing, "tensors that an EAGLE3 draft needs are missing");
  say(check.misshapen, "have another shape than config.json's");
  say(check.unexpected, "have no place in an EAGLE3 draft");
  SF_CHECK(faults.empty(), Exit::kData, "{}: {}", set.path.string(), fmt::join(faults, "; "));
}

ckpt::Manifest manifest_of(const ImportOptions& options, const TensorSet& set, const ckpt::Checkpoint& target,
                           const arch::ModelSpec& spec) {
  ckpt::Manifest manifest;
  manifest.kind = "draft";
  text::ChatEncoder encoder = text::ChatEncoder::open(options.target);
  ckpt::TargetLink link{target.identity(),
                        encoder.tokenizer_digest(),
                        encoder.template_digest(),
                        fs::canonical(options.target).string(),
                        {}};
  for (const arch::Parameter& p : spec.parameters)
    if (!p.trainable) link.taken[p.name] = p.init.substr(p.init.find(':') + 1);
  for (const arch::Buffer& b : spec.buffers)
    if (!b.stored) manifest.recompute.push_back(b.name);
  manifest.extra.set("algorithm", "eagle3");
  Json source =
      Json::object().set("format", set.kind).set("name", fs::absolute(set.path).lexically_normal().filename().string());
  if (set.metadata.is_object())
    if (const Json* step = set.metadata.find("global_step")) source.set("step", *step);
  manifest.extra.set("source", std::move(source));
  ckpt::set_target(manifest, link);
  return manifest;
}

fs::path import_draft(const ImportOptions& options) {
  SF_CHECK(!options.target.empty(), Exit::kUsage, "a draft belongs to a target: give its checkpoint with --target");
  TensorSet set = open_draft(options), target = open_tensors(options.target);
  SF_CHECK(target.checkpoint, Exit::kData, "{} is no checkpoint directory", options.target.string());
  arch::Eagle3 draft = arch::eagle3_from_config(set.config);
  arch::Decoder decoder = arch::decoder_from_config(target.config);
  SF_CHECK(draft.vocab == decoder.vocab && draft.target_hidden == decoder.hidden, Exit::kProtocol,
           "{} is a draft for a vocabulary of {} and states of {}, {} has {} and {}", options.source.string(),
           draft.vocab, draft.target_hidden, options.target.string(), decoder.vocab, decoder.hidden);
  // A config of SpecForge that says nothing means the default layers.
  if (draft.capture_layers == (std::array<int64_t, 3>{}))
    draft.capture_layers = arch::eagle3_for_target(decoder, draft.draft_vocab).capture_layers;
  arch::ModelSpec spec = arch::describe(draft);
  for (const arch::Parameter& p : spec.parameters)
    if (!p.trainable) drop_embedding(set, p.name, p.init.substr(p.init.find(':') + 1), target);
  check_tensors(set, spec);
  VocabBuffers words = vocabulary(set, draft);
  std::vector<ckpt::TensorSource> tensors;
  for (const arch::Parameter& p : spec.parameters)
    if (p.trainable) {
      const StoredTensor& from = *set.stored(p.name);
      tensors.push_back(converted(from, p.name, options.dtype.value_or(from.dtype.value_or(Dtype::kF32))));
    }
  draft.stored = tensors.front().dtype;
  auto bytes = [](const auto& values) {
    return [&values](const ckpt::TensorSource::Sink& sink) { sink(std::as_bytes(std::span(values))); };
  };
  tensors.push_back({"d2t", Dtype::kI64, {draft.draft_vocab}, bytes(words.d2t)});
  tensors.push_back({"t2d", Dtype::kBool, {draft.vocab}, bytes(words.t2d)});
  ckpt::Publisher publisher(options.out);
  return publisher.commit(tensors, arch::eagle3_to_config(draft), manifest_of(options, set, *target.checkpoint, spec));
}

bool is_draft(const ImportOptions& options) {
  if (!options.draft_config.empty() || !options.target.empty()) return true;
  std::error_code ignored;
  fs::path config = options.source / "config.json";
  if (!is_present(config)) return !fs::is_directory(options.source, ignored);
  return Json::parse(read_file(config), config.string()).contains("draft_vocab_size");
}

}  // namespace

fs::path import_model(const ImportOptions& options) {
  std::error_code ignored;
  SF_CHECK(fs::exists(options.source, ignored), Exit::kNoInput, "{}: no such file or directory",
           options.source.string());
  if (is_draft(options)) return import_draft(options);
  InitModelOptions model{
      .source = options.source, .out = options.out, .dtype = options.dtype, .report = options.report};
  return init_model(model);
}

}  // namespace sf::tool
