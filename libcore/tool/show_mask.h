// SPDX-License-Identifier: Apache-2.0
// Which tokens of rows are supervised, for the eye.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/command.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace sf::tool {

// A row's text as its tokens spell it, special tokens included. Supervised tokens stand out: green with `colours`, else
// between ⟦ and ⟧. Control characters but the newline are shown as \\xNN: text from files must not drive a terminal.
std::string masked_text(const text::Tokenizer& tokenizer, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                        bool colours);
// The same as HTML, supervised tokens in <mark>.
std::string masked_html(const text::Tokenizer& tokenizer, std::span<const int32_t> ids, std::span<const uint8_t> mask);

// sf-capture inspect WHAT --mask --target DIR: the rows of a chats file as capture would take them, or those that lie
// in a directory of features; --html gives a page.
int show_mask(app::Invocation& invocation);

}  // namespace sf::tool
