// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace sf::text {
namespace {

// Start of the last code point before `at`. Requires: at > 0, valid UTF-8.
size_t step_back(std::string_view text, size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

uint8_t class_at(std::string_view text, size_t at, unsigned& length) {
  return unicode_classes()[decode_valid(text.data() + at, length)];
}

bool word_at(std::string_view text, size_t at) {
  unsigned length;
  return class_at(text, at, length) & (kLetter | kMark | kNumber | kConnector);
}

bool stands_alone(std::string_view text, size_t start, size_t stop) {
  if (start > 0 && word_at(text, step_back(text, start))) return false;
  return stop >= text.size() || !word_at(text, stop);
}

size_t strip_left(std::string_view text, size_t start, size_t not_before) {
  while (start > not_before) {
    size_t before = step_back(text, start);
    unsigned length;
    if (before < not_before || !(class_at(text, before, length) & kSpace)) break;
    start = before;
  }
  return start;
}

size_t strip_right(std::string_view text, size_t stop) {
  while (stop < text.size()) {
    unsigned length;
    if (!(class_at(text, stop, length) & kSpace)) break;
    stop += length;
  }
  return stop;
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view content) {
  if (content.empty()) return;
  uint32_t node = 0;
  for (unsigned char c : content) {
    auto [edge, fresh] = edges_.emplace(uint64_t{node} << 8 | c, static_cast<uint32_t>(nodes_.size()));
    if (fresh) nodes_.emplace_back();
    node = edge->second;
  }
  if (nodes_[node].token >= 0) return;
  starts_[static_cast<unsigned char>(content[0])] = true;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

const AddedToken* AddedTokenMatcher::longest(std::string_view text, size_t at, size_t& length) const {
  const AddedToken* found = nullptr;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    auto edge = edges_.find(uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (nodes_[node].token >= 0) found = &tokens_[static_cast<size_t>(nodes_[node].token)], length = i + 1 - at;
  }
  return found;
}

void AddedTokenMatcher::cut(std::string_view text, std::vector<Segment>& out) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    if (!starts_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    size_t length = 0;
    const AddedToken* token = longest(text, at, length);
    if (!token) {
      ++at;
      continue;
    }
    size_t start = at, stop = at + length;
    at = stop;
    if (token->single_word && !stands_alone(text, start, stop)) continue;
    if (token->lstrip) start = strip_left(text, start, done);
    if (token->rstrip) at = stop = strip_right(text, stop);
    if (start > done) out.push_back({-1, text.substr(done, start - done)});
    out.push_back({token->id, text.substr(start, stop - start)});
    done = stop;
  }
  if (done < text.size()) out.push_back({-1, text.substr(done)});
}

}  // namespace sf::text
