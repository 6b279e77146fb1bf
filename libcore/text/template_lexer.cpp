// SPDX-License-Identifier: Apache-2.0
#include "text/template_lexer.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace sf::text {
namespace {

bool digit(char c) {
  return c >= '0' && c <= '9';
}
bool name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool name_part(char c) {
  return name_start(c) || digit(c);
}

class Lexer {
 public:
  explicit Lexer(const TemplateSource& source) : source_(source), text_(source.text) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      size_t tag = next_tag(at_);
      if (tag == text_.npos) {
        emit(Token::kText, std::string(text_.substr(at_)), at_);
        break;
      }
      data_before(tag);
      at_ = tag + 2;
      if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
      if (text_[tag + 1] == '#')
        comment(tag);
      else if (text_[tag + 1] == '%' && raw_begins())
        raw(tag);
      else
        code(tag);
    }
    emit(Token::kEnd, "", text_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(size_t at, std::string_view what) const {
    fail(Exit::kConfig, "{}: {}", source_.place(at), what);
  }
  void emit(Token::Kind kind, std::string text, size_t at) {
    if (kind != Token::kText || !text.empty()) tokens_.push_back({kind, std::move(text), at});
  }

  size_t next_tag(size_t from) const {
    for (size_t i = from; (i = text_.find('{', i)) != text_.npos && i + 1 < text_.size(); ++i)
      if (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#') return i;
    return text_.npos;
  }

  // Python's whitespace before or after a place.
  size_t back_over_space(size_t from, size_t to) const {
    while (to > from) {
      size_t before = to - 1;
      while (before > from && (static_cast<unsigned char>(text_[before]) & 0xC0) == 0x80) --before;
      if (!python_space(decode_utf8(text_, before).value)) break;
      to = before;
    }
    return to;
  }
  size_t over_space(size_t at) const {
    while (at < text_.size()) {
      Decoded step = decode_utf8(text_, at);
      if (!python_space(step.value)) break;
      at += step.length;
    }
    return at;
  }

  // The text between at_ and a tag, stripped as the tag's sign and lstrip_blocks say.
  size_t stripped_end(size_t tag) const {
    char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
    if (sign == '-') return back_over_space(at_, tag);
    if (sign == '+' || text_[tag + 1] == '{') return tag;
    size_t line = text_.substr(at_, tag - at_).rfind('\n');
    size_t start = line == text_.npos ? at_ : at_ + line + 1;
    bool own_line = start > at_ || line_starting_;
    return own_line && back_over_space(start, tag) == start ? start : tag;
  }
  void data_before(size_t tag) { emit(Token::kText, std::string(text_.substr(at_, stripped_end(tag) - at_)), at_); }

  void ended(size_t at, bool line_starting) { at_ = at, line_starting_ = line_starting; }
  // Behind "%}" or "#}": the sign before it decides what happens to the white space there.
  void after_block(size_t end, char sign) {
    size_t next = end;
    if (sign == '-')
      next = over_space(end);
    else if (sign != '+' && end < text_.size() && text_[end] == '\n')
      next = end + 1;
    ended(next, next > end && text_[next - 1] == '\n');
  }

  void comment(size_t tag) {
    size_t close = text_.find("#}", at_);
    if (close == text_.npos) refuse(tag, "a comment is not closed");
    char sign = close > at_ ? text_[close - 1] : ' ';
    after_block(close + 2, sign);
  }

  bool word_at(size_t at, std::string_view word) const {
    return text_.substr(at, word.size()) == word &&
           (at + word.size() >= text_.size() || !name_part(text_[at + word.size()]));
  }
  bool raw_begins() const { return word_at(over_space(at_), "raw"); }

  void raw(size_t tag) {
    size_t close = over_space(over_space(at_) + 3);
    bool strip = close < text_.size() && text_[close] == '-';
    if (strip) ++close;
    if (text_.substr(close, 2) != "%}") refuse(tag, "wanted %} after raw");
    ended(strip ? over_space(close + 2) : close + 2, false);
    for (size_t end = at_; (end = text_.find("{%", end)) != text_.npos; end += 2) {
      size_t word = end + 2;
      if (word < text_.size() && (text_[word] == '-' || text_[word] == '+')) ++word;
      word = over_space(word);
      if (!word_at(word, "endraw")) continue;
      data_before(end);
      size_t finish = over_space(word + 6);
      char sign = finish < text_.size() ? text_[finish] : ' ';
      if (sign == '-' || sign == '+') ++finish;
      if (text_.substr(finish, 2) != "%}") refuse(end, "wanted %} after endraw");
      return after_block(finish + 2, sign);
    }
    refuse(tag, "raw is not closed");
  }

  void code(size_t tag) {
    bool block = text_[tag + 1] == '%';
    std::string_view end = block ? "%}" : "}}";
    emit(block ? Token::kBlockBegin : Token::kOutputBegin, "", tag);
    std::string open;  // brackets
    while (true) {
      at_ = over_space(at_);
      if (at_ >= text_.size()) refuse(tag, block ? "a block tag is not closed" : "an output tag is not closed");
      if (open.empty()) {
        bool sign = text_[at_] == '-' || (block && text_[at_] == '+');
        if (text_.substr(at_ + (sign ? 1 : 0), 2) == end) {
          char mark = sign ? text_[at_] : ' ';
          emit(block ? Token::kBlockEnd : Token::kOutputEnd, "", at_);
          size_t behind = at_ + (sign ? 3 : 2);
          if (block) return after_block(behind, mark);
          size_t next = mark == '-' ? over_space(behind) : behind;
          return ended(next, next > behind && text_[next - 1] == '\n');
        }
      }
      token(open);
    }
  }

  void token(std::string& open) {
    char c = text_[at_];
    if (name_start(c)) {
      size_t start = at_;
      while (at_ < text_.size() && name_part(text_[at_])) ++at_;
      return emit(Token::kName, std::string(text_.substr(start, at_ - start)), start);
    }
    if (digit(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (std::string_view op : kOperators) {
      if (text_.substr(at_, op.size()) != op) continue;
      balance(op, open);
      emit(Token::kOperator, std::string(op), at_);
      at_ += op.size();
      return;
    }
    Decoded step = decode_utf8(text_, at_);
    refuse(at_, fmt::format("unexpected character '{}'", text_.substr(at_, step.length)));
  }

  void balance(std::string_view op, std::string& open) const {
    size_t kind = std::string_view("([{").find(op);
    if (kind != std::string_view::npos) {
      open += ")]}"[kind];
    } else if (op == ")" || op == "]" || op == "}") {
      if (open.empty() || open.back() != op[0]) refuse(at_, fmt::format("unexpected '{}'", op));
      open.pop_back();
    }
  }

  void digits(std::string& out) {
    while (at_ < text_.size() &&
           (digit(text_[at_]) || (text_[at_] == '_' && at_ + 1 < text_.size() && digit(text_[at_ + 1])))) {
      if (text_[at_] != '_') out += text_[at_];
      ++at_;
    }
  }

  void number() {
    size_t start = at_;
    std::string out;
    digits(out);
    auto is = [&](size_t i, auto test) { return i < text_.size() && test(text_[i]); };
    bool real = false;
    bool after_dot = !tokens_.empty() && tokens_.back().kind == Token::kOperator && tokens_.back().text == ".";
    if (!after_dot && is(at_, [](char c) { return c == '.'; }) && is(at_ + 1, digit)) {
      real = true;
      out += text_[at_++];
      digits(out);
    }
    if (!after_dot && is(at_, [](char c) { return c == 'e' || c == 'E'; })) {
      size_t sign = is(at_ + 1, [](char c) { return c == '+' || c == '-'; }) ? 1 : 0;
      if (is(at_ + 1 + sign, digit)) {
        real = true;
        out += text_.substr(at_, 1 + sign);
        at_ += 1 + sign;
        digits(out);
      }
    }
    if (is(at_, name_part)) refuse(start, "a number runs into a name");
    emit(real ? Token::kFloat : Token::kInteger, std::move(out), start);
  }

  void string(char quote) {
    size_t start = at_++;
    std::string out;
    while (true) {
      if (at_ >= text_.size()) refuse(start, "a string is not closed");
      char c = text_[at_++];
      if (c == quote) break;
      if (c == '\\')
        escape(start, out);
      else
        out += c;
    }
    emit(Token::kString, std::move(out), start);
  }

  char32_t hex(size_t start, unsigned count) {
    char32_t value = 0;
    for (unsigned i = 0; i < count; ++i, ++at_) {
      char c = at_ < text_.size() ? text_[at_] : ' ';
      unsigned nibble = digit(c)               ? static_cast<unsigned>(c - '0')
                        : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a' + 10)
                        : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A' + 10)
                                               : 16;
      if (nibble > 15) refuse(start, "a broken escape in a string");
      value = value * 16 + nibble;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) refuse(start, "an escape that is no character");
    return value;
  }

  void escape(size_t start, std::string& out) {
    if (at_ >= text_.size()) refuse(start, "a string is not closed");
    static constexpr std::string_view kFrom = "nrtabfv\\'\"", kTo = "\n\r\t\a\b\f\v\\'\"";
    char c = text_[at_++];
    size_t plain = kFrom.find(c);
    if (plain != kFrom.npos)
      out += kTo[plain];
    else if (c == '\n')
      return;  // a continued line
    else if (c == 'x')
      append_utf8(out, hex(start, 2));
    else if (c == 'u')
      append_utf8(out, hex(start, 4));
    else if (c == 'U')
      append_utf8(out, hex(start, 8));
    else if (c >= '0' && c <= '7') {
      char32_t value = static_cast<char32_t>(c - '0');
      for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i)
        value = value * 8 + static_cast<char32_t>(text_[at_++] - '0');
      append_utf8(out, value);
    } else if (c == 'N')
      refuse(start, "escapes by character name are not supported");
    else
      out += '\\', out += c;
  }

  const TemplateSource& source_;
  std::string_view text_;
  size_t at_ = 0;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalise_template(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
      continue;
    }
    out += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<Token> lex_template(const TemplateSource& source) {
  return Lexer(source).run();
}

}  // namespace sf::text
