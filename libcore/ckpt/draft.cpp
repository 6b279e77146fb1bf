// SPDX-License-Identifier: Apache-2.0
#include "ckpt/draft.h"

#include "arch/adapter.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "ckpt/as_published.h"

namespace sf::ckpt {

void set_target(Manifest& manifest, const TargetLink& link) {
  Json::Object taken;
  for (const auto& [name, of] : link.taken) taken.emplace_back(name, of);
  Json target = Json::object();
  target.set("identity", link.identity).set("tokenizer", link.tokenizer).set("chat_template", link.chat_template);
  target.set("path", link.path);
  manifest.extra.set("target", target.set("taken", Json(std::move(taken))));
}

TargetLink target_of(const Checkpoint& draft) {
  const Json* target = draft.manifest().extra.find("target");
  SF_CHECK(target, Exit::kData,
           "{}: the manifest names no target; was this made by sf-init or sf-train? sf-init draft ALGORITHM --from {} "
           "makes a draft of a published one",
           draft.dir().string(), draft.dir().string());
  try {
    TargetLink link{target->at("identity").as_string(),
                    target->get_string("tokenizer", ""),
                    target->get_string("chat_template", ""),
                    target->get_string("path", ""),
                    {}};
    if (const Json* taken = target->find("taken"))
      for (const auto& [name, of] : taken->as_object()) link.taken[name] = of.as_string();
    return link;
  } catch (Error& error) {
    error.add_context(fmt::format("{}: target", (draft.dir() / "manifest.json").string()));
    throw;
  }
}

void check_target(const Checkpoint& draft, const Checkpoint& target) {
  if (fault("ckpt.any_target")) return;
  check_as_published(draft);
  TargetLink link = target_of(draft);
  std::string wanted = link.identity, found = target.identity();
  SF_CHECK(wanted == found, Exit::kProtocol,
           "{} is {} of another target: made for identity {:.16}, while {} is {:.16}; give the target it was made for",
           draft.dir().string(), arch::is_adapter_config(draft.config()) ? "an adapter" : "a draft", wanted,
           target.dir().string(), found);
  std::filesystem::path words = target.dir() / "tokenizer.json";
  std::error_code ignored;
  if (link.tokenizer.empty() || !std::filesystem::exists(words, ignored)) return;
  std::string digest = sha256_hex(read_file(words));
  SF_CHECK(digest == link.tokenizer, Exit::kProtocol,
           "{} was made for another tokenizer: {:.16}, while {} is {:.16}; give the target it was made for",
           draft.dir().string(), link.tokenizer, words.string(), digest);
}

arch::VocabMap read_vocab_map(const Checkpoint& draft) {
  TensorView d2t = draft.view("d2t"), t2d = draft.view("t2d");
  SF_CHECK(d2t.dtype == Dtype::kI64 && d2t.shape.size() == 1, Exit::kData,
           "{}: d2t is {} {}, wanted I64 [draft vocabulary]", draft.dir().string(), name_of(d2t.dtype),
           to_string(d2t.shape));
  SF_CHECK((t2d.dtype == Dtype::kBool || t2d.dtype == Dtype::kU8) && t2d.shape.size() == 1, Exit::kData,
           "{}: t2d is {} {}, wanted BOOL [vocabulary]", draft.dir().string(), name_of(t2d.dtype),
           to_string(t2d.shape));
  return arch::vocab_map_from({reinterpret_cast<const int64_t*>(d2t.data), static_cast<size_t>(d2t.shape[0])},
                              {reinterpret_cast<const uint8_t*>(t2d.data), static_cast<size_t>(t2d.shape[0])});
}

}  // namespace sf::ckpt
