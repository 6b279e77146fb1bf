// SPDX-License-Identifier: Apache-2.0
// A new draft that begins with the tensors of a published one (sf-init draft --from): what was taken of it, what it
// lacked and begins anew, what it held besides.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "tool/init_blocks.h"
#include "tool/progress.h"

namespace sf::tool {

struct WarmStart {
  std::string algorithm;
  uint64_t seed = 0;   // of what begins anew: the values that sf-init draft would give it
  DraftConfig config;  // of a draft of blocks made of another family's: its own parts
};

// Names in the draft's own spelling.
struct Taken {
  std::vector<std::string> taken;
  std::map<std::string, std::string> missing;  // name -> how it begins, in arch::Parameter's words
  std::map<std::string, std::string> left;     // name -> why, or empty
};
// What the manifest keeps: source, taken, missing, left; complete.
Json to_json(const Taken& taken, const std::string& source);
void tell(const Taken& taken, const std::string& source, const Reporter& report);

// The config.json of a draft of this algorithm with the shapes of `published`, another family's: both on blocks.
// kConfig otherwise.
Json grown(const Json& published, const WarmStart& start);

}  // namespace sf::tool
