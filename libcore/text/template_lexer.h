// SPDX-License-Identifier: Apache-2.0
// Template text to tokens, with Jinja's white space rules (trim_blocks, lstrip_blocks, the signs - and +).
#pragma once
#include <string>
#include <vector>

#include "text/template_runtime.h"

namespace sf::text {

struct Token {
  enum Kind {
    kText,
    kOutputBegin,
    kOutputEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kInteger,
    kFloat,
    kString,
    kOperator,
    kEnd
  };
  Kind kind = kEnd;
  std::string text;  // a string's value with its escapes resolved
  size_t at = 0;
};

// Line ends become \n; one line end at the very end is dropped.
std::string normalise_template(std::string_view text);
// kConfig with the place for what is no token or is not closed. The last token is kEnd.
std::vector<Token> lex_template(const TemplateSource& source);

}  // namespace sf::text
