// SPDX-License-Identifier: Apache-2.0
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "text/unicode.h"

namespace sf::text {
namespace {

constexpr std::string_view kWhite =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr uint32_t kMatchLimit = 10'000'000;

// \s and \S written out; the rest unchanged. A \S inside a class cannot be written so and is refused.
std::string with_white_space(std::string_view pattern, std::string_view origin) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      char next = pattern[++i];
      if (next == 's') {
        out += in_class ? std::string(kWhite) : fmt::format("[{}]", kWhite);
      } else if (next == 'S') {
        SF_CHECK(!in_class, Exit::kData, "{}: pattern: \\S inside a class at byte {} is not supported", origin, i - 1);
        out += fmt::format("[^{}]", kWhite);
      } else {
        out += c;
        out += next;
      }
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') out += pattern[++i];
      continue;
    }
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

struct MatchScratch {
  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;

  explicit MatchScratch(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 * 1024, 8 * 1024 * 1024, nullptr)) {
    if (!data || !context || !stack) throw std::bad_alloc();
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchScratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  std::string origin;
  ~Code() { pcre2_code_free(code); }
};

Regex Regex::compile(std::string_view pattern, std::string_view origin) {
  std::string source = with_white_space(pattern, origin);
  auto holder = std::make_shared<Code>();
  holder->origin = origin;
  int error = 0;
  PCRE2_SIZE offset = 0;
  holder->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  SF_CHECK(holder->code, Exit::kData, "{}: pattern is not understood at byte {}: {}", origin, offset,
           message_of(error));
  pcre2_jit_compile(holder->code, PCRE2_JIT_COMPLETE);  // where it cannot, the interpreter runs
  Regex result;
  result.code_ = std::move(holder);
  return result;
}

void Regex::each_match(std::string_view text,
                       const std::function<void(const size_t* bounds, size_t pairs)>& take) const {
  MatchScratch scratch(code_->code);
  auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t done = 0;  // end of the match before
  for (size_t at = 0; at < text.size();) {
    int rc = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
      rc = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch.data,
                       scratch.context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    SF_CHECK(rc > 0, Exit::kData, "{}: matching failed at byte {} of the text: {}", code_->origin, at, message_of(rc));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch.data);
    SF_CHECK(range[0] >= done && range[1] >= range[0], Exit::kData,
             "{}: the pattern moves a match backwards at byte {}", code_->origin, at);
    take(range, static_cast<size_t>(rc));
    done = range[1];
    at = range[1] > range[0] ? range[1] : range[1] + decode_utf8(text, range[1]).length;
    if (range[1] >= text.size()) break;
  }
}

std::vector<std::pair<size_t, size_t>> Regex::matches(std::string_view text) const {
  std::vector<std::pair<size_t, size_t>> found;
  each_match(text, [&](const size_t* bounds, size_t) { found.emplace_back(bounds[0], bounds[1]); });
  return found;
}

std::optional<std::pair<size_t, size_t>> Regex::last_match(std::string_view text) const {
  std::optional<std::pair<size_t, size_t>> found;
  each_match(text, [&](const size_t* bounds, size_t pairs) {
    const size_t pair = pairs > 1 && bounds[2] != PCRE2_UNSET ? 1 : 0;
    found = {bounds[2 * pair], bounds[2 * pair + 1]};
  });
  return found;
}

}  // namespace sf::text
