// SPDX-License-Identifier: Apache-2.0
#include "report/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "report/page.h"
#include "report/svg.h"

namespace sf::report {
namespace {

std::string fixed(double value, int decimals) {
  return fmt::format("{:.{}f}", value, decimals);
}

std::string grouped(int64_t value) {
  std::string text = fmt::format("{}", value);
  for (int at = static_cast<int>(text.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string span_text(double seconds) {
  auto whole = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

// The mean of a field over the last tenth of the steps (at least one).
std::optional<double> late_mean(const std::vector<const Record*>& steps, std::string_view key) {
  size_t count = std::max<size_t>(1, steps.size() / 10), seen = 0;
  double sum = 0;
  for (size_t i = steps.size() - std::min(count, steps.size()); i < steps.size(); ++i) {
    const Json* value = steps[i]->fields.find(key);
    if (!value || !value->is_number()) continue;
    sum += value->as_double();
    ++seen;
  }
  if (seen == 0) return std::nullopt;
  return sum / static_cast<double>(seen);
}

// Of a run that learns from rewards: held-out answers at its first and last evaluation.
std::string held_tiles(const std::vector<const Record*>& steps) {
  std::string first, last;
  for (const Record* step : steps) {
    const Json* correct = step->fields.find("val/correct");
    if (!correct || !correct->is_number()) continue;
    last = fmt::format("{:.0f}", correct->as_double());
    if (first.empty()) first = last;
    last += fmt::format(" of {:.0f}", step->fields.get_double("val/n", 0));
  }
  return last.empty() ? "" : tile(first == last ? last : first + " → " + last, "correct of what is held out");
}

std::string tiles(const std::vector<const Record*>& steps, const std::vector<Json>& acceptance) {
  std::string text;
  if (!acceptance.empty()) {
    double last = acceptance.back().get_double("acceptance_length", NAN);
    double first = acceptance.front().get_double("acceptance_length", NAN);
    if (acceptance.size() > 1 && std::isfinite(first) && std::isfinite(last))
      text += tile(fmt::format("{} → {}", fixed(first, 2), fixed(last, 2)), "acceptance length");
    else if (std::isfinite(last))
      text += tile(fixed(last, 2), "acceptance length");
    double plain = acceptance.back().get_double("tokens_per_s_plain", NAN);
    double draft = acceptance.back().get_double("tokens_per_s_draft", NAN);
    if (std::isfinite(plain) && std::isfinite(draft) && plain > 0)
      text += tile(fmt::format("{}×", fixed(draft / plain, 2)),
                   fmt::format("{} → {} tokens/s, greedy", fixed(plain, 1), fixed(draft, 1)));
  }
  text += held_tiles(steps);
  if (auto loss = late_mean(steps, "loss")) text += tile(fixed(*loss, 3), "loss, last tenth of the steps");
  if (auto accuracy = late_mean(steps, "acc_0"))
    text += tile(fmt::format("{} %", fixed(100 * *accuracy, 1)), "accuracy of position 1, last tenth");
  text += tile(grouped(steps.back()->step), "steps");
  double tokens = 0;
  for (const Record* step : steps) tokens += step->fields.get_double("tokens", 0);
  if (tokens > 0) text += tile(grouped(static_cast<int64_t>(tokens)), "tokens, all epochs");
  text += tile(span_text(steps.back()->t - steps.front()->t), "from first to last step");
  return "<div class=\"tiles\">\n" + text + "</div>\n";
}

std::string cell(const Json& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_int()) return grouped(value.as_int());
  if (value.is_array()) {
    std::string text;
    for (const Json& item : value.as_array())
      text +=
          (text.empty() ? "" : ", ") + (item.is_number() && !item.is_int() ? fixed(item.as_double(), 3) : cell(item));
    return text;
  }
  if (value.is_object() && value.contains("rate"))  // a position's acceptance
    return fmt::format("{} of {}", value.at("accepted").as_int(), value.at("tried").as_int());
  return value.is_null() ? "none" : value.dump();
}

std::string facts_table(const std::string& title, const Json& record) {
  std::string rows;
  for (const auto& [key, value] : record.as_object()) {
    if (key == "v" || key == "event" || key == "t" || key == "rank" || key == "step") continue;
    rows += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escaped(key), escaped(cell(value)));
  }
  if (rows.empty()) return "";
  return fmt::format("<section class=\"card wide\"><h2>{}</h2><table>{}</table></section>\n", escaped(title), rows);
}

std::string acceptance_table(const std::vector<Json>& acceptance) {
  if (acceptance.empty()) return "";
  std::vector<std::string> keys;
  for (const Json& record : acceptance)
    for (const auto& [key, value] : record.as_object())
      if (!value.is_object() && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  std::string rows;
  for (const std::string& key : keys) {
    rows += fmt::format("<tr><th>{}</th>", escaped(key));
    for (const Json& record : acceptance) {
      const Json* value = record.find(key);
      rows += fmt::format("<td>{}</td>", value ? escaped(cell(*value)) : "not run");
    }
    rows += "</tr>\n";
  }
  return "<section class=\"card wide\"><h2>Acceptance on held prompts</h2><table>" + rows + "</table></section>\n";
}

}  // namespace

std::string page_of(const std::string& name, const std::vector<Record>& records, const std::vector<Json>& acceptance) {
  std::vector<const Record*> steps;
  const Record* run = nullptr;
  const Record* end = nullptr;
  for (const Record& record : records) {
    if (record.event == "step") steps.push_back(&record);
    if (record.event == "run") run = &record;
    if (record.event == "end") end = &record;
  }
  SF_CHECK(!steps.empty(), Exit::kData, "{}: the metrics hold no step yet", name);
  std::string body = fmt::format("<h1>{}</h1>\n<p class=\"sub\">", escaped(name));
  body += run ? escaped(run->fields.get_string("command", "")) : "";
  body += "</p>\n" + tiles(steps, acceptance) + "<div class=\"cards\">\n";
  for (const Chart& chart : charts_of(records, acceptance)) body += chart_card(chart);
  body += acceptance_table(acceptance);
  if (run) body += facts_table("The run", run->fields);
  if (end) body += facts_table("How it ended", end->fields);
  return document(name, body + "</div>\n", "metrics.jsonl");
}

std::vector<std::filesystem::path> write_report(const std::filesystem::path& run_dir, const std::filesystem::path& out,
                                                const std::vector<Json>& acceptance) {
  std::vector<Record> records = read_metrics(run_dir / "metrics.jsonl");
  std::filesystem::path whole = std::filesystem::weakly_canonical(run_dir);
  std::string name = (whole.parent_path().filename() / whole.filename()).string();
  std::string page = page_of(name, records, acceptance);
  return write_page(page, charts_of(records, acceptance), out);
}

}  // namespace sf::report
