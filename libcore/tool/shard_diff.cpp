// SPDX-License-Identifier: Apache-2.0
#include "tool/shard_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "tool/compare_values.h"

namespace sf::tool {
namespace {

Json index_json(const Shape& shape, int64_t element) {
  Json::Array index(shape.size());
  for (size_t d = shape.size(); d-- > 0; element /= shape[d]) index[d] = Json(element % shape[d]);
  return Json(std::move(index));
}

std::string distance(uint64_t ulp) {
  return ulp == kNoDistance ? "a number and NaN among them" : fmt::format("at most {} ulp apart", ulp);
}

struct Report {
  const DiffOptions& options;
  Json rows = Json::array(), first;
  std::vector<std::string> lines;
  int64_t tensors = 0, elements = 0, differ = 0;
  std::set<std::string> tensors_differ;

  void add(const std::string& name, std::string line, Json row) {
    tensors_differ.insert(name);
    lines.push_back(name + "  " + std::move(line));
    rows.push(std::move(row.set("tensor", name)));
  }

  void compare(const std::string& name, const StoredTensor& a, const StoredTensor& b) {
    ++tensors;
    if (a.shape != b.shape)
      return add(name, fmt::format("shape {} against {}", to_string(a.shape), to_string(b.shape)),
                 Json::object().set("what", "shape"));
    if (a.type != b.type && !options.values)
      add(name, fmt::format("type {} against {}", a.type, b.type), Json::object().set("what", "type"));
    Compared found;
    try {
      found = compare_values(a, b, options.most_ulp);
    } catch (const Error& error) {
      if (error.code() != Exit::kData) throw;
      return add(name, error.what(), Json::object().set("what", "type"));
    }
    elements += found.elements;
    if (found.differ == 0) return;
    differ += found.differ;
    add_values(name, a.dtype ? a.shape : Shape{found.elements}, found);
  }

  void add_values(const std::string& name, const Shape& shape, const Compared& found) {
    Json index = index_json(shape, found.first);
    std::string line = fmt::format("{} of {} differ as {}, {}; first {}: {} against {}", found.differ, found.elements,
                                   found.as, distance(found.most_ulp), index.dump(), found.first_a, found.first_b);
    Json row = Json::object().set("what", "values").set("as", found.as);
    row.set("differ", found.differ).set("elements", found.elements);
    row.set("most_ulp", found.most_ulp == kNoDistance ? Json() : Json(found.most_ulp));
    row.set("first", index).set("a", found.first_a).set("b", found.first_b);
    if (first.is_null()) first = Json::object().set("tensor", name).set("index", index);
    add(name, line, row);
  }
};

std::set<std::string> names_of(const TensorSet& set) {
  std::set<std::string> names;
  for (const StoredTensor& tensor : set.tensors) names.insert(tensor.name);
  for (const auto& [name, of] : set.aliases) names.insert(name);
  return names;
}

void compare_aliases(const TensorSet& a, const TensorSet& b, Report& report) {
  std::map<std::string, std::string> all = a.aliases;
  all.insert(b.aliases.begin(), b.aliases.end());
  auto said = [](const TensorSet& set, const std::string& name) {
    auto found = set.aliases.find(name);
    return found == set.aliases.end() ? std::string("no alias") : "alias of " + found->second;
  };
  for (const auto& [name, of] : all) {
    if (said(a, name) == said(b, name) || !a.find(name) || !b.find(name)) continue;
    report.add(name, fmt::format("{} against {}", said(a, name), said(b, name)), Json::object().set("what", "alias"));
  }
}

}  // namespace

Diff diff(const DiffOptions& options) {
  TensorSet a = open_model(options.a), b = open_model(options.b);
  Report report{options, Json::array(), {}, {}, 0, 0, 0, {}};
  std::set<std::string> names = names_of(a);
  names.merge(names_of(b));
  std::set<std::pair<const StoredTensor*, const StoredTensor*>> done;
  for (const std::string& name : names) {
    const StoredTensor *left = a.find(name), *right = b.find(name);
    if (!left || !right) {
      report.add(name, fmt::format("only in {}", (left ? a : b).path.string()), Json::object().set("what", "missing"));
      ++report.tensors;
    } else if (done.emplace(left, right).second) {
      report.compare(name, *left, *right);
    }
  }
  if (!options.values) compare_aliases(a, b, report);
  Diff result;
  result.equal = report.lines.empty();
  for (size_t i = 0; i < std::min(report.lines.size(), ckpt::kListed); ++i) result.table += report.lines[i] + "\n";
  if (report.lines.size() > ckpt::kListed)
    result.table += fmt::format("and {} more lines\n", report.lines.size() - ckpt::kListed);
  auto count = static_cast<int64_t>(report.tensors_differ.size());
  result.table += result.equal
                      ? fmt::format("no difference in {} tensors, {} elements\n", report.tensors, report.elements)
                      : fmt::format("{} of {} tensors differ, {} of {} elements\n", count, report.tensors,
                                    report.differ, report.elements);
  result.json.set("equal", result.equal).set("tensors", report.tensors).set("tensors_differ", count);
  result.json.set("elements", report.elements).set("elements_differ", report.differ);
  result.json.set("first", report.first).set("differences", report.rows);
  return result;
}

}  // namespace sf::tool
