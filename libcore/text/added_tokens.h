// SPDX-License-Identifier: Apache-2.0
// Added tokens found in a text before it is split: leftmost, longest, with strip and word rules
// (models_text_scoring 4.2).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sf::text {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

// A part of a text: a token, or ordinary text where id < 0.
struct Segment {
  int32_t id;
  std::string_view text;
};

// A trie over the contents of one stage (raw text, or normalised text).
class AddedTokenMatcher {
 public:
  // `content` is what to look for: token.content, or its normalised form. Empty contents are ignored; the first wins.
  void add(const AddedToken& token, std::string_view content);
  bool empty() const { return tokens_.empty(); }
  void cut(std::string_view text, std::vector<Segment>& out) const;  // appends; no empty segments

 private:
  // Longest token that starts at `at`, or null; `length` of the match in bytes.
  const AddedToken* longest(std::string_view text, size_t at, size_t& length) const;

  struct Node {
    int32_t token = -1;
  };
  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{1};
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  bool starts_[256] = {};
};

}  // namespace sf::text
