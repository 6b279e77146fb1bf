// SPDX-License-Identifier: Apache-2.0
#include "ckpt/merge_record.h"

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "ckpt/digest.h"

namespace sf::ckpt {
namespace {

std::string tensors_digest(const Checkpoint& files) {
  std::map<std::string, TensorDigest> digests;
  for (const std::string& name : files.names()) {
    const TensorView view = files.stored(name);
    digests[name] = {view.dtype, view.shape, hex64(xxh3_64(view.span()))};
  }
  return identity_of(digests, "");
}

const Json* last_record(const Checkpoint& target) {
  return target.manifest().extra.is_object() ? target.manifest().extra.find("merged") : nullptr;
}

}  // namespace

Json merge_record(const Checkpoint& target, const AdapterFiles& adapter) {
  Json record = Json::object();
  record.set("target", target.identity()).set("adapter", adapter.files().identity());
  record.set("tensors", tensors_digest(adapter.files())).set("step", adapter.files().manifest().step);
  if (const Json* before = last_record(target)) record.set("before", *before);
  return record;
}

void check_not_merged(const AdapterFiles& adapter, const Checkpoint& target) {
  const Json* record = last_record(target);
  if (!record || fault("ckpt.merge_again")) return;
  const std::string tensors = tensors_digest(adapter.files()), identity = adapter.files().identity();
  for (; record; record = record->find("before")) {
    SF_CHECK(record->is_object(), Exit::kData, "{}: key \"merged\" holds {}, wanted an object",
             (target.dir() / "manifest.json").string(), record->type_name());
    SF_CHECK(record->get_string("tensors", "") != tensors && record->get_string("adapter", "") != identity,
             Exit::kProtocol, "{} is merged into {} already: its manifest records the adapter's digest {:.16}",
             adapter.files().dir().string(), target.dir().string(), tensors);
  }
}

}  // namespace sf::ckpt
