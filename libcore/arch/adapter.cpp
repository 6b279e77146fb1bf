// SPDX-License-Identifier: Apache-2.0
#include "arch/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <regex>
#include <set>

#include "base/error.h"

namespace sf::arch {
namespace {

constexpr std::string_view kWeight = ".weight", kSaved = "base_model.model.";
constexpr size_t kLongestPattern = 512;

// A pattern comes from a file: the matcher that backtracks could take for ever, and counted repeats could take all of
// the stack.
class Pattern {
 public:
  explicit Pattern(const std::string& text) {
    SF_CHECK(text.size() <= kLongestPattern && text.find('{') == std::string::npos, Exit::kConfig,
             "pattern \"{:.60}\" is longer than {} bytes or holds {{}}: give the names one by one", text,
             kLongestPattern);
    try {
      regex_ = std::regex(text, std::regex::ECMAScript | std::regex_constants::__polynomial);
    } catch (const std::regex_error&) {
      fail(Exit::kConfig, "\"{}\" is no regular expression", text);
    }
  }
  bool matches(const std::string& name) const { return std::regex_match(name, regex_); }

 private:
  std::regex regex_;
};

bool is_or_ends_in(std::string_view name, std::string_view entry) {
  if (name == entry) return true;
  return name.size() > entry.size() && name.ends_with(entry) && name[name.size() - entry.size() - 1] == '.';
}

bool any_of(const std::vector<std::string>& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return is_or_ends_in(name, entry); });
}

class Matcher {
 public:
  explicit Matcher(const Selection& selection) : names_(selection.names) {
    all_ = selection.pattern == kAllLinear;
    if (!all_ && !selection.pattern.empty()) pattern_.emplace_back(selection.pattern);
  }
  bool operator()(const std::string& name) const {
    if (all_) return true;
    return pattern_.empty() ? any_of(names_, name) : pattern_.front().matches(name);
  }

 private:
  const std::vector<std::string>& names_;
  bool all_ = false;
  std::vector<Pattern> pattern_;  // none or one
};

Pattern ending(const std::string& key) {
  return Pattern("(.*\\.)?(" + key + ")");
}

// What an override is matched with: a linear layer's module, or the parameter of experts.
std::string named(const Adapter& adapter) {
  const std::string& name = adapter.parameter;
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

// Overrides of one kind: the first whose expression matches the end of a module's name.
template <typename Value>
class Overrides {
 public:
  explicit Overrides(const std::vector<std::pair<std::string, Value>>& entries) {
    for (const auto& [key, value] : entries) entries_.emplace_back(ending(key), value);
  }
  Value of(const std::string& module, Value otherwise) const {
    for (const auto& [pattern, value] : entries_)
      if (pattern.matches(module)) return value;
    return otherwise;
  }

 private:
  std::vector<std::pair<Pattern, Value>> entries_;
};

bool in_block(const Segment& segment) {
  return segment.name.starts_with("layers.");
}

// The module of a linear layer's weight; empty for anything else. A router's matrix belongs to no linear layer, nor
// does a table of n-grams.
std::string linear_module(const Parameter& parameter) {
  const std::string& name = parameter.name;
  bool linear = parameter.shape.size() == 2 && name.ends_with(kWeight) && !name.ends_with(".mlp.gate.weight") &&
                !name.ends_with(".ngram_embedding.weight");
  return linear ? name.substr(0, name.size() - kWeight.size()) : "";
}

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

std::string parent(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

// A module's own weight of three extents is a convolution's.
bool is_experts(const Parameter& parameter) {
  return parameter.shape.size() == 3 && !parameter.name.ends_with(kWeight);
}

class Finder {
 public:
  Finder(const Lora& lora, const ModelSpec& target)
      : lora_(lora),
        target_(target),
        wanted_(lora.targets),
        excluded_(lora.excluded),
        ranks_(lora.ranks),
        alphas_(lora.alphas) {}

  std::vector<Adapter> find() {
    for (const Segment& segment : target_.segments) {
      if (!in_block(segment) || !counts(segment)) continue;
      for (const std::string& name : segment.parameters) look_at(*target_.find(name));
    }
    name();
    return std::move(found_);
  }

 private:
  bool counts(const Segment& segment) const {
    if (lora_.layers.empty()) return true;
    int64_t number = -1;
    std::from_chars(segment.name.data() + std::string_view("layers.").size(), segment.name.data() + segment.name.size(),
                    number);
    return std::find(lora_.layers.begin(), lora_.layers.end(), number) != lora_.layers.end();
  }

  void look_at(const Parameter& parameter) {
    std::string module = linear_module(parameter);
    bool linear = !module.empty() && !excludes(module) && wanted_(module);
    bool experts = is_experts(parameter) && any_of(lora_.parameters, parameter.name);
    if (!linear && !experts) return;
    if (experts) module = parent(parameter.name);
    Adapter adapter{.parameter = parameter.name, .module = module};
    adapter.experts = experts ? parameter.shape.front() : 1;
    adapter.out = parameter.shape[parameter.shape.size() - 2];
    adapter.in = parameter.shape.back();
    adapter.rank = ranks_.of(named(adapter), lora_.rank);
    double alpha = alphas_.of(named(adapter), lora_.alpha), rank = static_cast<double>(adapter.rank);
    adapter.scale = alpha / (lora_.rank_stabilised ? std::sqrt(rank) : rank);
    found_.push_back(std::move(adapter));
  }

  bool excludes(const std::string& module) const { return !lora_.excluded.empty() && excluded_(module); }

  // Two adapted parameters of one module nest in PEFT: the last one is outermost, each one before it lies one
  // "base_layer" deeper (rl_lora L-07).
  void name() {
    for (size_t i = 0; i < found_.size(); ++i) {
      std::string deeper;
      for (size_t j = i + 1; j < found_.size(); ++j)
        if (found_[j].module == found_[i].module) deeper += ".base_layer";
      found_[i].a = std::string(kSaved) + found_[i].module + deeper + ".lora_A.weight";
      found_[i].b = std::string(kSaved) + found_[i].module + deeper + ".lora_B.weight";
    }
  }

  const Lora& lora_;
  const ModelSpec& target_;
  Matcher wanted_, excluded_;
  Overrides<int64_t> ranks_;
  Overrides<double> alphas_;
  std::vector<Adapter> found_;
};

std::vector<std::string> linear_modules(const ModelSpec& target) {
  std::vector<std::string> modules;
  for (const Segment& segment : target.segments)
    for (const std::string& name : segment.parameters)
      if (const Parameter* parameter = target.find(name); in_block(segment) && parameter)
        if (std::string module = linear_module(*parameter); !module.empty()) modules.push_back(module);
  return modules;
}

// "down_proj, gate_proj, ...", and the parameters of experts.
std::string there_are(const ModelSpec& target) {
  std::set<std::string> endings;
  for (const std::string& module : linear_modules(target)) endings.emplace(last_part(module));
  std::string text = fmt::format("its linear layers end in {}", fmt::join(endings, ", "));
  std::set<std::string> experts;
  for (const Parameter& parameter : target.parameters)
    if (is_experts(parameter)) experts.emplace(last_part(parameter.name));
  if (!experts.empty()) text += fmt::format("; its parameters of experts in {}", fmt::join(experts, ", "));
  return text;
}

}  // namespace

std::vector<Adapter> adapters_of(const Lora& lora, const ModelSpec& target) {
  std::vector<Adapter> found = Finder(lora, target).find();
  SF_CHECK(!found.empty(), Exit::kConfig, "the adapter's targets match nothing of this target: {}", there_are(target));
  return found;
}

void check_targets(const Lora& lora, const ModelSpec& target) {
  std::vector<std::string> modules = linear_modules(target), nothing;
  for (const std::string& entry : lora.targets.names)
    if (std::none_of(modules.begin(), modules.end(), [&](const auto& m) { return is_or_ends_in(m, entry); }))
      nothing.push_back(entry);
  for (const std::string& entry : lora.parameters)
    if (std::none_of(target.parameters.begin(), target.parameters.end(),
                     [&](const auto& p) { return is_experts(p) && is_or_ends_in(p.name, entry); }))
      nothing.push_back(entry);
  SF_CHECK(nothing.empty(), Exit::kConfig, "{} match{} nothing of this target: {}", fmt::join(nothing, ", "),
           nothing.size() == 1 ? "es" : "", there_are(target));
  std::vector<std::string> idle;
  const std::vector<Adapter> found = adapters_of(lora, target);
  auto look = [&](const std::string& key) {
    const Pattern pattern = ending(key);
    if (std::none_of(found.begin(), found.end(), [&](const auto& adapter) { return pattern.matches(named(adapter)); }))
      idle.push_back(key);
  };
  for (const auto& [key, rank] : lora.ranks) look(key);
  for (const auto& [key, alpha] : lora.alphas) look(key);
  SF_CHECK(idle.empty(), Exit::kConfig, "other ranks or alphas are given for what gets no adapter: {}",
           fmt::join(idle, ", "));
}

std::vector<std::string> linear_endings(const ModelSpec& target) {
  std::set<std::string> endings;
  for (const std::string& module : linear_modules(target)) endings.emplace(last_part(module));
  return {endings.begin(), endings.end()};
}

std::vector<Parameter> parameters_of(std::span<const Adapter> adapters) {
  std::vector<Parameter> parameters;
  for (const Adapter& adapter : adapters) {
    std::string start = "uniform:" + double_text(1.0 / std::sqrt(static_cast<double>(adapter.in)));
    parameters.push_back({adapter.a, adapter.a_shape(), true, start});
    parameters.push_back({adapter.b, adapter.b_shape(), true, "zeros"});
  }
  return parameters;
}

void add_adapters(ModelSpec& spec, std::span<const Adapter> adapters) {
  for (Parameter& parameter : spec.parameters) parameter.trainable = false;
  for (Parameter& parameter : parameters_of(adapters)) spec.parameters.push_back(std::move(parameter));
  for (const Adapter& adapter : adapters) {
    for (Segment& segment : spec.segments) {
      auto& names = segment.parameters;
      if (std::find(names.begin(), names.end(), adapter.parameter) == names.end()) continue;
      names.push_back(adapter.a);
      names.push_back(adapter.b);
      if (adapter.experts == 1)
        segment.flops_per_token += 2.0 * static_cast<double>(adapter.rank * (adapter.in + adapter.out));
    }
  }
}

}  // namespace sf::arch
