// SPDX-License-Identifier: Apache-2.0
// The rows of a golden folder of answers.
#pragma once
#include <cstdlib>
#include <string>

#include "base/file.h"
#include "base/json.h"

namespace sf::score {

inline Json::Array golden_rows(const std::string& folder) {
  const char* root = std::getenv("SF_GOLDEN_ROOT");
  std::string path = std::string(root ? root : "tests/golden") + "/" + folder + "/case.json";
  return Json::parse(read_file(path), path).at("rows").as_array();
}

}  // namespace sf::score
