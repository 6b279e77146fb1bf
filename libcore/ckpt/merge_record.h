// SPDX-License-Identifier: Apache-2.0
// What the manifest of a target says of the adapters that were merged into it: key "merged", the last one's record, and
// in it under "before" the record of the one before.
#pragma once
#include "ckpt/adapter.h"
#include "ckpt/checkpoint.h"

namespace sf::ckpt {

// The record of the target that `adapter` merged into `target` makes: identities of both, the adapter's step and the
// digest of its tensors, whatever settings lie beside them.
Json merge_record(const Checkpoint& target, const AdapterFiles& adapter);
// kProtocol naming both if the tensors of `adapter` have gone into `target` before. An adapter without a manifest names
// no target, and only this tells.
void check_not_merged(const AdapterFiles& adapter, const Checkpoint& target);

}  // namespace sf::ckpt
