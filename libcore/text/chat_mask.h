// SPDX-License-Identifier: Apache-2.0
// Which tokens of a chat the target would have written.
#pragma once
#include <string>
#include <string_view>

#include "text/chat.h"

namespace sf::text {

EncodedChat truncated(EncodedChat encoded, size_t max_length);

// Each answer renders the chat anew up to itself, which is quadratic: a row with more answers among the tokens that are
// kept is refused (kData), so that one hostile row cannot hold a run up for minutes.
constexpr size_t kMostAnswers = 256;

struct MaskMaker {
  const ChatEncoder& encoder;
  MaskRule rule;
  size_t max_length = 0;  // tokens that are kept (0: all); nothing behind them is looked at

  // Renders the chat up to each assistant message (with the generation prompt) and behind it. A turn whose rendering
  // the template rewrites inside the whole chat (thinking dropped from history) is not what the target would write: it
  // stays unsupervised.
  EncodedChat by_prefixes(const Json& messages) const;
  // Both: masks of the whole text's tokens; zero behind max_length.
  // For text that is rendered already: between the template's own generation prompt and its end of turn.
  EncodedChat by_spans(const std::string& text) const;

 private:
  // Tokens of a prefix of the text; kData if they are no prefix of the text's tokens.
  size_t tokens_before(const EncodedChat& whole, const std::string& text, size_t bytes) const;
  // Marks the turn's tokens. False if the tokens that are kept end within it: no later turn matters.
  bool supervise(EncodedChat& whole, const std::string& text, size_t start, size_t end) const;
};

}  // namespace sf::text
