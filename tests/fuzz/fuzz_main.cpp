// SPDX-License-Identifier: Apache-2.0
// FUZZER CORPUS [MUTATIONS [SEED]]: every file of the corpus, then so many mutations of them; SF_SOAK: fifty times
// more.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "fuzz.h"

namespace {

// One of: a bit turned, a byte set to an edge, a piece left out, doubled, or taken from another input.
std::string mutated(std::string text, const std::string& other, const sf::Rng& rng, uint64_t round) {
  const uint64_t edits = 1 + rng.below(4, round, 0);
  for (uint64_t i = 0; i < edits; ++i) {
    auto draw = [&](uint64_t below, uint64_t what) { return rng.below(below, round, 16 * (i + 1) + what); };
    if (text.empty()) text = other.substr(0, draw(other.size() + 1, 1));
    if (text.empty()) return text;
    size_t at = draw(text.size(), 2), length = 1 + draw(std::min<size_t>(text.size() - at, 64), 3);
    switch (draw(6, 4)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << draw(8, 5)));
        break;
      case 1:
        text[at] = static_cast<char>("\x00\x01\x7f\x80\xff\"{["[draw(8, 5)]);
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4:
        text.resize(at);
        break;
      default:
        text.replace(at, length, other.substr(draw(other.size() + 1, 5), length));
    }
  }
  return text;
}

void one(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 64;
  uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 20000,
           seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  if (std::getenv("SF_SOAK")) count *= 50;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) return std::fprintf(stderr, "%s: no corpus\n", argv[1]), 66;
  std::vector<std::string> corpus;
  for (const auto& file : files) corpus.push_back(sf::read_file(file));
  std::string now;
  try {
    for (const std::string& text : corpus) one(now = text);
    sf::Rng rng(seed, "fuzz");
    for (uint64_t round = 0; round < count; ++round) {
      const std::string &base = corpus[rng.below(corpus.size(), round, 1)],
                        &other = corpus[rng.below(corpus.size(), round, 2)];
      one(now = mutated(base, other, rng, round));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "FAILED: %s\non %zu bytes:", error.what(), now.size());
    for (unsigned char byte : now) std::fprintf(stderr, " %02x", byte);
    std::fprintf(stderr, "\n");
    return 1;
  }
  std::printf("%zu files and %llu mutations of them (seed %llu): every one read or refused\n", corpus.size(),
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(seed));
}
