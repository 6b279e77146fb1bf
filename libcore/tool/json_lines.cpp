// SPDX-License-Identifier: Apache-2.0
#include "tool/json_lines.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/mmap.h"
#include "score/strings.h"

namespace sf::tool {
namespace {

constexpr size_t kMostLine = size_t{256} << 20;

// A surrogate written as \uD83C without its other half is no character: the JSON parser refuses it, tools write it.
void mend_surrogates(std::string& line) {
  auto half = [&](size_t at, char low, char high) {
    return at + 6 <= line.size() && line[at] == '\\' && line[at + 1] == 'u' && score::lower(line[at + 2]) == 'd' &&
           score::lower(line[at + 3]) >= low && score::lower(line[at + 3]) <= high;
  };
  for (size_t at = 0; at + 1 < line.size(); ++at) {
    if (line[at] != '\\') continue;
    bool first = half(at, '8', 'b'), second = half(at, 'c', 'f');
    if (first && half(at + 6, 'c', 'f')) {
      at += 11;
    } else if (first || second) {
      line.replace(at, 6, "\\ufffd");
      at += 5;
    } else {
      ++at;
    }
  }
}

std::string mended(std::string_view line) {
  std::string text = score::repaired_utf8(line);
  mend_surrogates(text);
  return text;
}

}  // namespace

JsonLines each_line(const std::filesystem::path& file, HalfLine half,
                    const std::function<void(std::string_view, size_t)>& take) {
  MappedFile map = MappedFile::open(file);
  std::string_view text(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
  JsonLines result;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    bool whole = end != std::string_view::npos;
    std::string_view line = text.substr(begin, (whole ? end : text.size()) - begin);
    begin = whole ? end + 1 : text.size();
    ++number;
    if (score::trimmed_ascii(line).empty()) continue;
    SF_CHECK(line.size() <= kMostLine, Exit::kData, "{}:{}: a line of {} bytes; {} are the most", file.string(), number,
             line.size(), kMostLine);
    try {
      take(line, number);
    } catch (Error& error) {
      if (whole || error.code() != Exit::kData) throw;
      if (half != HalfLine::kLeaveOut)
        fail(Exit::kData, "{}:{}: the last line is half written ({}){}", file.string(), number, error.message(),
             half == HalfLine::kRefuse ? "" : "; --repair leaves it out");
      result.dropped = true;
      continue;
    }
    ++result.lines;
  }
  return result;
}

JsonLines each_row(const std::filesystem::path& file, HalfLine half,
                   const std::function<void(const Json&, size_t)>& take) {
  size_t repaired = 0;
  JsonLines result = each_line(file, half, [&](std::string_view line, size_t number) {
    std::string origin = fmt::format("{}:{}", file.string(), number);
    Json row;
    try {
      row = Json::parse(line, origin);
    } catch (const Error&) {
      std::string text = mended(line);
      if (text == line) throw;
      row = Json::parse(text, origin);
      ++repaired;
    }
    take(row, number);
  });
  result.repaired = repaired;
  return result;
}

}  // namespace sf::tool
