// SPDX-License-Identifier: Apache-2.0
#include "tool/exam_files.h"

#include "base/error.h"
#include "base/fault.h"
#include "tool/eval_data.h"

namespace sf::tool {

namespace fs = std::filesystem;

namespace {

// Why a file holds no whole verdicts; empty: it does.
std::string why_torn(const fs::path& file) {
  try {
    read_scores(file, HalfLine::kRefuse);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

bool is_file(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored);
}

}  // namespace

std::optional<fs::path> ExamFiles::found() const {
  for (const fs::path& file : {whole, verdicts})
    if (is_file(file) && (fault("tool.count_torn") || why_torn(file).empty())) return file;
  return std::nullopt;
}

bool is_whole(const fs::path& file) {
  return is_file(file) && why_torn(file).empty();
}

std::vector<std::string> ExamFiles::damage() const {
  std::vector<std::string> lines;
  for (const fs::path& file : {whole, verdicts})
    if (is_file(file) && (lines.empty() || is_part()))
      if (std::string why = why_torn(file); !why.empty()) lines.push_back(why);
  return lines;
}

}  // namespace sf::tool
