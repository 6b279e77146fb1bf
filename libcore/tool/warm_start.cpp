// SPDX-License-Identifier: Apache-2.0
#include "tool/warm_start.h"

#include <fmt/format.h>

#include "arch/drafts.h"
#include "base/error.h"

namespace sf::tool {
namespace {

// "NAME (WHY)"
std::vector<std::string> with_reasons(const std::map<std::string, std::string>& reasons) {
  std::vector<std::string> lines;
  for (const auto& [name, why] : reasons) lines.push_back(why.empty() ? name : fmt::format("{} ({})", name, why));
  return lines;
}

Json object_of(const std::map<std::string, std::string>& reasons) {
  Json object = Json::object();
  for (const auto& [name, why] : reasons) object.set(name, why);
  return object;
}

}  // namespace

Json to_json(const Taken& taken, const std::string& source) {
  Json names = Json::array();
  for (const std::string& name : taken.taken) names.push(name);
  return Json::object()
      .set("source", source)
      .set("taken", std::move(names))
      .set("missing", object_of(taken.missing))
      .set("left", object_of(taken.left));
}

void tell(const Taken& taken, const std::string& source, const Reporter& report) {
  auto say = [&](size_t count, std::string_view what, const std::vector<std::string>& names) {
    report.say(fmt::format("{} {}{}{}", count, what, count > 0 ? ": " : "", fmt::join(names, ", ")));
  };
  say(taken.taken.size(), fmt::format("tensors taken from {}", source), taken.taken);
  say(taken.missing.size(), "missing there, begun anew", with_reasons(taken.missing));
  say(taken.left.size(), "left over", with_reasons(taken.left));
}

Json grown(const Json& published, const WarmStart& start) {
  const arch::DraftFamily& from = arch::draft_family(published);
  const arch::DraftFamily& to = arch::draft_family_named(start.algorithm);
  if (from.name == to.name) return published;
  SF_CHECK(from.blocks && to.blocks && start.config, Exit::kConfig,
           "a draft of {} cannot begin as one of {}: only drafts of blocks share tensors with another family",
           from.name, to.name);
  return start.config(from.blocks(published));
}

}  // namespace sf::tool
