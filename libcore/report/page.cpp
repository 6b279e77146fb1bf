// SPDX-License-Identifier: Apache-2.0
#include "report/page.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/file.h"
#include "report/style.h"
#include "report/svg.h"

namespace sf::report {

std::string tile(std::string_view value, std::string_view what) {
  return fmt::format("<div class=\"tile\"><div class=\"n\">{}</div><div class=\"w\">{}</div></div>\n", escaped(value),
                     escaped(what));
}

std::string chart_card(const Chart& chart) {
  std::string note = chart.note.empty() ? "" : fmt::format("<p>{}</p>", escaped(chart.note));
  return "<section class=\"card\">" + chart.svg + note + "</section>\n";
}

std::string document(std::string_view title, std::string_view body, std::string_view source) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{} · ShardForge</title>\n"
      "<style>\n{}{}</style>\n</head>\n<body>\n<main>\n{}<footer>Made by sf-eval report (ShardForge) from "
      "{}.</footer>\n</main>\n</body>\n</html>\n",
      escaped(title), chart_style(), page_style(), body, escaped(source));
}

std::vector<std::filesystem::path> write_page(const std::string& page, const std::vector<Chart>& charts,
                                              const std::filesystem::path& out) {
  std::vector<std::filesystem::path> files, made;
  auto write = [&](const std::filesystem::path& file, std::string_view text) {
    bool is_new = !std::filesystem::exists(file);
    write_atomic(file, text);
    files.push_back(file);
    if (is_new) made.push_back(file);
  };
  try {
    write(out, page);
    if (std::filesystem::is_other(out)) return files;  // a device or FIFO: no place for files beside it
    for (const Chart& chart : charts) {
      std::filesystem::path file = out;
      write(file.replace_filename(out.stem().string() + "-" + chart.name + ".svg"), standalone(chart.svg));
    }
  } catch (const Error&) {
    std::error_code ignored;
    for (const std::filesystem::path& file : made) std::filesystem::remove(file, ignored);
    throw;
  }
  return files;
}

}  // namespace sf::report
