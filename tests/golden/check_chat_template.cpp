// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "base/error.h"
#include "golden.h"
#include "text/template.h"
#include "text/tokenizer.h"
#include "tokenizer_files.h"

namespace sf::golden {
namespace {

constexpr text::Moment kFrozen{2026, 2, 3, 4, 5, 6};

Json variables_of(const Json& row) {
  Json variables = row.contains("variables") ? row.at("variables") : Json::object();
  if (row.contains("add_generation_prompt")) variables.set("add_generation_prompt", row.at("add_generation_prompt"));
  variables.set("messages", row.at("messages"));
  return variables;
}

// Empty if the row holds.
std::string difference(const text::Template& chat_template, const Json& row) {
  const Json* refusal = row.find("error");
  std::string text;
  try {
    text = chat_template.render(variables_of(row), kFrozen);
  } catch (const Error& error) {
    if (!refusal) return fmt::format("refused: {}", error.what());
    std::string wanted = refusal->as_string();
    constexpr std::string_view kOwn = "TemplateError: ";
    if (!wanted.starts_with(kOwn)) return "";
    wanted.erase(0, kOwn.size());
    return error.message() == wanted ? "" : fmt::format("refused with \"{}\", wanted \"{}\"", error.message(), wanted);
  }
  if (refusal) return fmt::format("rendered {}, wanted the refusal \"{}\"", Json(text).dump(), refusal->as_string());
  const std::string& wanted = row.at("text").as_string();
  return text == wanted ? "" : fmt::format("rendered {}, wanted {}", Json(text).dump(), Json(wanted).dump());
}

Outcome check(const Case& c) {
  auto chat_template = text::Template::parse(c.json.at("template").as_string(), "template");
  const Json::Array& rows = c.json.at("rows").as_array();
  size_t with_ids = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string found = difference(chat_template, rows[i]);
    if (!found.empty()) return Outcome::failed(fmt::format("row {}: {}", i, found));
    with_ids += rows[i].contains("ids");
  }
  std::string name = tokenizer_of(c);
  auto tokenizer = with_ids > 0 ? tokenizer_named(name) : nullptr;
  if (with_ids > 0 && !tokenizer)
    return {Outcome::kPassed, fmt::format("{} rows; ids not compared: {}", rows.size(), missing_tokenizer(name))};
  for (size_t i = 0; i < rows.size() && tokenizer; ++i)
    if (rows[i].contains("ids") && tokenizer->encode(rows[i].at("text").as_string()) != ids_of(rows[i].at("ids")))
      return Outcome::failed(fmt::format("row {}: ids differ", i));
  return {Outcome::kPassed, fmt::format("{} rows", rows.size())};
}

// One small template a row, over variables that all share.
Outcome check_snippets(const Case& c) {
  const Json::Array& rows = c.json.at("rows").as_array();
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string& source = rows[i].at("template").as_string();
    std::string found;
    try {
      text::Template snippet = text::Template::parse(source, "template");
      std::string rendered = snippet.render(c.json.at("variables"), kFrozen);
      const Json* wanted = rows[i].find("text");
      if (!wanted)
        found = fmt::format("rendered {}, wanted the refusal \"{}\"", Json(rendered).dump(),
                            rows[i].at("error").as_string());
      else if (rendered != wanted->as_string())
        found = fmt::format("rendered {}, wanted {}", Json(rendered).dump(), wanted->dump());
    } catch (const Error& error) {
      if (!rows[i].contains("error")) found = fmt::format("refused: {}", error.what());
    }
    if (!found.empty()) return Outcome::failed(fmt::format("row {}: {}: {}", i, Json(source).dump(), found));
  }
  return {Outcome::kPassed, fmt::format("{} rows", rows.size())};
}

const bool registered = add("chat_template", check) && add("template_snippets", check_snippets);

}  // namespace
}  // namespace sf::golden
