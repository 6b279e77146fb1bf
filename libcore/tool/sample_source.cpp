// SPDX-License-Identifier: Apache-2.0
#include "tool/sample_source.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "stream/feature_dir.h"
#include "stream/handle.h"

namespace sf::tool {

namespace fs = std::filesystem;

std::vector<std::string> from_of(app::Invocation& invocation) {
  std::vector<std::string> from = invocation.all("from");
  for (const std::string& one : from) {
    SF_CHECK(one == "-" || fs::exists(one) || one.ends_with(".handle"), Exit::kNoInput,
             "--from {}: no such directory or handle file (one that is to come is called NAME.handle)", one);
    SF_CHECK(from.size() == 1 || one == "-" || !fs::is_directory(one), Exit::kUsage,
             "--from {} is a directory, which stands alone: several --from name one producer each", one);
    SF_CHECK(std::count(from.begin(), from.end(), one) == 1, Exit::kUsage, "--from {} is given twice", one);
  }
  SF_CHECK(std::find(from.begin(), from.end(), "-") == from.end() || !invocation.stdin_is_terminal(), Exit::kUsage,
           "--from - reads a stream's handle from a pipe, but stdin is a terminal; pipe sf-capture features into this "
           "command, or give a directory");
  return from;
}

bool lies_in_directory(const std::vector<std::string>& from) {
  return from.size() == 1 && from.front() != "-" && fs::is_directory(from.front());
}

std::optional<stream::Contract> check_source(app::Invocation& invocation, const stream::Contract& wanted) {
  const std::vector<std::string> from = from_of(invocation);
  if (lies_in_directory(from)) return stream::DirSource::open(from.front(), wanted)->contract();
  std::optional<stream::Contract> contract;
  for (const std::string& one : from) {
    if (one == "-" || !fs::exists(one)) continue;
    stream::Handle handle = stream::read_handle_file(one);
    std::optional<std::string> unmet = wanted.unmet_by(handle.contract);
    SF_CHECK(!unmet, Exit::kProtocol, "contract of {} differs in {}", handle.who(), unmet.value_or(""));
    contract = handle.contract;
  }
  return contract;
}

}  // namespace sf::tool
