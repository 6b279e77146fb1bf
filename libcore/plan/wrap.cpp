// SPDX-License-Identifier: Apache-2.0
#include "plan/wrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/fault.h"

namespace sf::plan {
namespace {

constexpr std::pair<std::string_view, std::string_view> kBlocks[] = {
    {"llama", "LlamaDecoderLayer"},        {"mistral", "MistralDecoderLayer"},    {"qwen2", "Qwen2DecoderLayer"},
    {"qwen3", "Qwen3DecoderLayer"},        {"eagle3", "LlamaDecoderLayer"},       {"dflash", "Qwen3DFlashDecoderLayer"},
    {"qwen2_moe", "Qwen2MoeDecoderLayer"}, {"qwen3_moe", "Qwen3MoeDecoderLayer"},
};

std::string_view last_of(std::string_view name) {
  return name.substr(name.rfind('.') == name.npos ? 0 : name.rfind('.') + 1);
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

bool is_inside(std::string_view name, std::string_view of) {
  return name.size() > of.size() && name.starts_with(of) && name[of.size()] == '.';
}

std::string type_of(const arch::ModelSpec& spec, std::string_view name) {
  std::string_view last = last_of(name);
  if (last == "embed_tokens" || std::string(name) + ".weight" == arch::kTargetEmbedding) return "Embedding";
  if (last.ends_with("norm")) return "RMSNorm";
  for (const auto& [family, type] : kBlocks)
    if (family == spec.family && (is_number(last) || last == "midlayer")) return std::string(type);
  return "Linear";
}

bool qualifies(const Module& module, const WrapRule& rule) {
  if (module.name.empty()) return false;  // the root is wrapped last, always
  if (std::find(rule.types.begin(), rule.types.end(), module.type) != rule.types.end()) return true;
  if (rule.tied) return false;
  if (module.type == "Embedding") return true;
  // A wrapper hides the type of what it wraps.
  std::string_view last = last_of(module.name);
  return (last == "embed_tokens" || last == "lm_head") &&
         std::any_of(module.parameters.begin(), module.parameters.end(),
                     [](const std::string& name) { return name.ends_with(".weight"); });
}

bool is_all_ignored(const Module& module, const std::set<std::string>& ignored) {
  return !ignored.empty() && std::all_of(module.parameters.begin(), module.parameters.end(),
                                         [&](const std::string& name) { return ignored.contains(name); });
}

void check_types(std::span<const Module> modules, const WrapRule& rule) {
  SF_CHECK(!rule.types.empty() && !rule.types.front().empty(), Exit::kConfig,
           "no class of modules is named that would be wrapped");
  std::set<std::string> known;
  for (const Module& module : modules) known.insert(module.type);
  bool any = std::any_of(rule.types.begin(), rule.types.end(), [&](const auto& type) { return known.contains(type); });
  SF_CHECK(any, Exit::kConfig, "no module is of class {}; this model has {}", fmt::join(rule.types, ", "),
           fmt::join(known, ", "));
}

}  // namespace

std::vector<Module> modules_of(const arch::ModelSpec& spec) {
  std::vector<Module> modules{{"", "model", {}}};
  std::map<std::string, size_t> places{{"", 0}};
  for (const arch::Parameter& parameter : spec.parameters) {
    modules[0].parameters.push_back(parameter.name);
    for (size_t dot = parameter.name.find('.'); dot != std::string::npos; dot = parameter.name.find('.', dot + 1)) {
      std::string name = parameter.name.substr(0, dot);
      auto [place, fresh] = places.emplace(name, modules.size());
      if (fresh) modules.push_back({name, type_of(spec, name), {}});
      modules[place->second].parameters.push_back(parameter.name);
    }
  }
  return modules;
}

std::vector<std::string> wrap_targets(std::span<const Module> modules, const WrapRule& rule) {
  check_types(modules, rule);
  std::vector<std::string> chosen, targets;
  for (const Module& module : modules) {
    auto holds = [&](const std::string& outer) { return is_inside(module.name, outer); };
    bool nested = std::any_of(chosen.begin(), chosen.end(), holds) && !fault("plan.nested_wrap");
    if (nested || !qualifies(module, rule)) continue;
    chosen.push_back(module.name);
    if (!is_all_ignored(module, rule.ignored)) targets.push_back(module.name);
  }
  for (const std::string& inner : targets)
    for (const std::string& outer : targets)
      SF_CHECK(!is_inside(inner, outer), Exit::kSoftware,
               "modules {} and {} are both wrapped, and the one lies in the other: its parameters have two groups",
               outer, inner);
  return targets;
}

std::set<std::string> root_segments(const arch::ModelSpec& spec, const std::vector<std::string>& types,
                                    const std::set<std::string>& ignored) {
  std::vector<std::string> targets = wrap_targets(modules_of(spec), {types, !spec.aliases.empty(), ignored});
  std::set<std::string> root;
  for (const arch::Segment& segment : spec.segments) {
    auto wrapped = [&](const std::string& name) {
      return std::any_of(targets.begin(), targets.end(), [&](const auto& target) { return is_inside(name, target); });
    };
    if (!std::any_of(segment.parameters.begin(), segment.parameters.end(), wrapped)) root.insert(segment.name);
  }
  return root;
}

}  // namespace sf::plan
