// SPDX-License-Identifier: Apache-2.0
#include "tool/outputs.h"

#include <unistd.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/present.h"
#include "stream/handle.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostReasons = size_t{64} << 20;  // a larger file is not taken for ours

// `holds` throws or says no if the file's text is not of our making.
void refuse_all_but(std::string_view ours, std::string_view option, const fs::path& file,
                    const std::function<bool(std::string_view text)>& holds) {
  refuse_to_replace(file);
  std::error_code ignored;
  SF_CHECK(!fs::is_directory(file, ignored), Exit::kCantCreate, "{} is a directory: give {} a FILE", file.string(),
           option);
  if (!fs::is_regular_file(file, ignored) || fs::file_size(file, ignored) == 0) return;
  bool like = false;
  try {
    like = holds(read_file(file, kMostReasons));
  } catch (const Error&) {
  }
  SF_CHECK(like || fault("tool.replace_foreign"), Exit::kCantCreate,
           "{} is there and holds no {}; it is not replaced: give {} another FILE", file.string(), ours, option);
}

}  // namespace

void refuse_existing(const fs::path& given) {
  const fs::path out = given.has_filename() ? given : given.parent_path();  // "out/" names the same as "out"
  SF_CHECK(!is_present(out), Exit::kCantCreate, "{} exists already; remove it or choose another -o", out.string());
  refuse_to_replace(out);
}

void require_place_for(const fs::path& out) {
  std::error_code ignored;
  const fs::path dir = out.has_parent_path() ? out.parent_path() : fs::path(".");
  SF_CHECK(fs::is_directory(dir, ignored), Exit::kCantCreate, "cannot create {}: there is no directory {}",
           out.string(), dir.string());
  SF_CHECK(access(dir.c_str(), W_OK) == 0, Exit::kCantCreate, "cannot create {}: {} may not be written to",
           out.string(), dir.string());
}

void require_place_for_dir(const fs::path& dir) {
  std::error_code ignored;
  fs::path there = fs::absolute(dir, ignored);
  while (!is_present(there) && there.has_relative_path()) there = there.parent_path();
  SF_CHECK(fs::is_directory(there, ignored) && access(there.c_str(), W_OK) == 0, Exit::kCantCreate,
           "cannot create {}: {} is no directory that may be written to", dir.string(), there.string());
}

void refuse_all_but_reasons(const fs::path& file) {
  refuse_all_but("reasons of void rows", "--rejected", file, [&](std::string_view text) {
    const Json row = Json::parse(text.substr(0, text.find('\n')), file.string());
    return row.is_object() && row.contains("row") && row.contains("id") && row.contains("reason");
  });
}

void refuse_all_but_handle(const fs::path& file) {
  refuse_all_but("handle", "--handle-file", file, [&](std::string_view text) {
    stream::Handle::parse(text, file.string());
    return true;
  });
}

}  // namespace sf::tool
