// SPDX-License-Identifier: Apache-2.0
#include "tool/sample_source.h"

#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "stream/feature_dir.h"
#include "stream/handle.h"

namespace sf::tool {

namespace fs = std::filesystem;

std::string from_of(app::Invocation& invocation) {
  std::string from = invocation.get("from");
  SF_CHECK(from == "-" || fs::exists(from), Exit::kNoInput, "--from {}: no such directory or handle file", from);
  SF_CHECK(from != "-" || !invocation.stdin_is_terminal(), Exit::kUsage,
           "--from - reads a stream's handle from a pipe, but stdin is a terminal; pipe sf-capture features into this "
           "command, or give a directory");
  return from;
}

std::optional<stream::Contract> check_source(app::Invocation& invocation, const stream::Contract& wanted) {
  std::string from = from_of(invocation);
  if (from == "-") return std::nullopt;
  if (fs::is_directory(from)) return stream::DirSource::open(from, wanted)->contract();
  stream::Handle handle = stream::Handle::parse(read_file(from, stream::kMaxHandleBytes), from);
  std::optional<std::string> unmet = wanted.unmet_by(handle.contract);
  SF_CHECK(!unmet, Exit::kProtocol, "contract of {} differs in {}", handle.who(), unmet.value_or(""));
  return handle.contract;
}

}  // namespace sf::tool
