// SPDX-License-Identifier: Apache-2.0
#include "tool/eval_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace sf::tool {
namespace {

using score::Outcome;

std::string words_of(std::string_view outcome) {
  std::string words(outcome);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string fact(std::string_view name, std::string_view text) {
  return fmt::format("{:<12}{}", name, text);
}

std::string outcome_line(const score::Summary& summary) {
  std::string line;
  for (size_t i = 0; i < score::kOutcomes; ++i) {
    auto outcome = static_cast<Outcome>(i);
    if (summary.count(outcome) == 0 && i > 1) continue;
    line +=
        fmt::format("{}{} {}", line.empty() ? "" : ", ", thousands(summary.count(outcome)), words_of(name_of(outcome)));
  }
  return line;
}

size_t border(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

}  // namespace

std::string percent(double share) {
  return fmt::format("{:.1f}", 100 * share);
}

std::string percent_range(const score::Interval& range) {
  return fmt::format("{}..{}", percent(range.low), percent(range.high));
}

std::string thousands(int64_t count) {
  std::string text = std::to_string(count);
  for (size_t at = text.size(); at > 3 + (count < 0 ? 1u : 0u);) text.insert(at -= 3, ",");
  return text;
}

std::vector<std::string> summary_lines(const score::Scores& scores, const score::Summary& summary,
                                       const score::Majorities& majorities) {
  const Json& header = scores.header;
  std::string each = summary.least == summary.most ? fmt::format("{}", summary.most)
                                                   : fmt::format("{} to {}", summary.least, summary.most);
  std::vector<std::string> lines;
  lines.push_back(
      fact("rule", fmt::format("{} version {} sha256:{}", header.get_string("rule", ""),
                               header.get_int("rule_version", 0), header.get_string("rule_digest", "").substr(0, 12))));
  lines.push_back(fact("questions", fmt::format("{}, {} answers each", thousands(summary.questions), each)));
  std::string name = summary.most == 1 ? "Wilson" : "questions are the clusters";
  int64_t correct = summary.count(Outcome::kCorrect);
  lines.push_back(
      fact("pass@1", fmt::format("{} %  95 %: {}  {} of {}, {}", percent(summary.rate), percent_range(summary.interval),
                                 thousands(correct), thousands(summary.answers), name)));
  if (summary.most > 1) {
    for (const auto& [k, value] : summary.pass_at)
      lines.push_back(fact(fmt::format("pass@{}", k),
                           fmt::format("{} %{}", percent(value),
                                       k == summary.most ? "  best of all answers, by a judge who knows" : "")));
    for (const auto& [k, value] : majorities.at)
      lines.push_back(fact(fmt::format("maj@{}", k), fmt::format("{} %  of all subsets, or {} drawn a question",
                                                                 percent(value), thousands(majorities.draws))));
    lines.push_back(fact(summary.least == summary.most ? fmt::format("maj@{}", summary.most) : "maj@n",
                         fmt::format("{} %  a tie of t counts 1/t", percent(summary.majority))));
    lines.push_back(fact("error", fmt::format("{} points; drawing the answers alone makes {}", percent(summary.error),
                                              percent(summary.within))));
  }
  lines.push_back(fact("outcomes", outcome_line(summary)));
  lines.push_back(
      fact("cut", fmt::format("{} of {} by the length limit", thousands(summary.cut), thousands(summary.answers))));
  if (summary.with_tokens > 0)
    lines.push_back(
        fact("tokens", fmt::format("{:.1f} on average over {} answers",
                                   static_cast<double>(summary.tokens) / static_cast<double>(summary.with_tokens),
                                   thousands(summary.with_tokens))));
  return lines;
}

std::string marked(std::string_view text, const score::Span& span, size_t around) {
  size_t begin = span.begin > around ? border(text, span.begin - around) : 0;
  size_t end = border(text, std::min(text.size(), span.end + around));
  std::string shown = begin > 0 ? "[...]" : "";
  shown += text.substr(begin, span.begin - begin);
  if (span.size() > 0) shown.append(">>>").append(span.of(text)).append("<<<");
  shown += text.substr(span.end, end - span.end);
  return shown + (end < text.size() ? "[...]" : "");
}

void say_lines(app::Invocation& invocation, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) invocation.result(printable(line));
}

}  // namespace sf::tool
