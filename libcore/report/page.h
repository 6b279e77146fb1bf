// SPDX-License-Identifier: Apache-2.0
// What all pages share: the frame, tiles, tables, and writing a page with its charts beside it.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "report/report.h"

namespace sf::report {

std::string tile(std::string_view value, std::string_view what);
// The whole document. `body` is markup; title and source are text. `source`: what the page was made from.
std::string document(std::string_view title, std::string_view body, std::string_view source);
std::string chart_card(const Chart& chart);

// Writes the page and each chart as OUT's stem + "-" + name + ".svg", each atomically; returns the files, the page
// first. If one of them cannot be written, those made before it go again.
std::vector<std::filesystem::path> write_page(const std::string& page, const std::vector<Chart>& charts,
                                              const std::filesystem::path& out);

}  // namespace sf::report
