// SPDX-License-Identifier: Apache-2.0
// usage: tokenizer_bench TOKENIZER_JSON TEXT: one pass over the text in 8 kB pieces, one thread, a fresh tokenizer.
// Then the ids of each line are hashed (SHA-256 of all int32), for comparison with others'.
#include <fmt/core.h>

#include <algorithm>

#include "base/deadline.h"
#include "base/file.h"
#include "base/hash.h"
#include "text/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  sf::text::Tokenizer tokenizer = sf::text::Tokenizer::open(argv[1]);
  std::string text = sf::read_file(argv[2]);
  constexpr size_t kPiece = 8192;
  size_t tokens = 0;
  double start = sf::monotonic_s();
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.size(), at + kPiece);
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
      ++end;  // keep code points whole
    tokens += tokenizer.encode(std::string_view(text).substr(at, end - at)).size();
    at = end;
  }
  double seconds = sf::monotonic_s() - start;
  std::string ids;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::vector<int32_t> line = tokenizer.encode(std::string_view(text).substr(at, end - at));
    ids.append(reinterpret_cast<const char*>(line.data()), line.size() * sizeof(int32_t));
    at = end + 1;
  }
  fmt::print("{{\"mb_per_s\": {:.3f}, \"tokens\": {}, \"bytes\": {}, \"ids_of_lines\": \"{}\"}}\n",
             static_cast<double>(text.size()) / 1e6 / seconds, tokens, text.size(), sf::sha256_hex(ids));
}
