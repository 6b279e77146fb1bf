// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <queue>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "text/unicode.h"

namespace sf::text {
namespace {

constexpr size_t kShort = 96;  // symbols up to which a linear scan beats a heap

uint64_t mix(uint64_t value) {
  value *= 0x9E3779B97F4A7C15u;
  return value ^ value >> 29;
}

// A thread's memory of pieces and their ids: direct mapped, 2 MiB, shared by all tokenizers of the thread.
struct alignas(64) CachedPiece {
  uint32_t owner = 0;
  uint8_t length = 0;
  uint8_t count = 0;
  char key[18];
  int32_t ids[10];
};
constexpr size_t kCacheSlots = size_t{1} << 15;

CachedPiece& cache_slot(uint32_t owner, std::string_view piece) {
  thread_local std::vector<CachedPiece> cache(kCacheSlots);
  uint64_t head = 0, tail = 0;
  if (piece.size() >= 8) {
    std::memcpy(&head, piece.data(), 8);
    std::memcpy(&tail, piece.data() + piece.size() - 8, 8);
    if (piece.size() > 16) head ^= static_cast<uint64_t>(static_cast<unsigned char>(piece[8])) << 9;
  } else {
    for (unsigned char c : piece) head = head << 8 | c;
  }
  uint64_t hash = mix(head ^ mix(tail + piece.size()) ^ (uint64_t{owner} << 40));
  return cache[hash >> 32 & (kCacheSlots - 1)];
}

bool same_bytes(const char* a, const char* b, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (a[i] != b[i]) return false;
  return true;
}

void refuse_unsupported(const Json& model, std::string_view origin) {
  std::string type = model.get_string("type", model.contains("merges") ? "BPE" : "");
  SF_CHECK(type == "BPE", Exit::kData, "{}: model \"{}\" is not supported (byte-level BPE is)", origin, type);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    std::string affix = model.get_string(key, "");
    SF_CHECK(affix.empty(), Exit::kData, "{}: model.{} \"{}\" is not supported", origin, key, affix);
  }
  SF_CHECK(!model.get_bool("byte_fallback", false), Exit::kData,
           "{}: model.byte_fallback is not supported (byte-level BPE is)", origin);
  SF_CHECK(!model.get_bool("fuse_unk", false), Exit::kData, "{}: model.fuse_unk is not supported", origin);
  SF_CHECK(model.get_double("dropout", 0) == 0, Exit::kData, "{}: model.dropout is not supported", origin);
}

}  // namespace

Bpe Bpe::from_json(const Json& model, std::string_view origin) {
  static std::atomic<uint32_t> serials{0};
  SF_CHECK(model.is_object(), Exit::kData, "{}: model: wanted an object, found {}", origin, model.type_name());
  refuse_unsupported(model, origin);
  Bpe bpe;
  bpe.serial_ = ++serials;
  bpe.ignore_merges_ = model.get_bool("ignore_merges", false);
  bpe.read_vocab(model.at("vocab"), origin);
  bpe.read_bytes();
  std::string unknown = model.get_string("unk_token", "");
  if (!unknown.empty()) {
    const Json* id = model.at("vocab").find(unknown);
    SF_CHECK(id, Exit::kData, "{}: model.unk_token \"{}\" is not in the vocabulary", origin, unknown);
    bpe.unknown_ = static_cast<int32_t>(id->as_int());
  }
  bpe.read_merges(model.at("merges"), origin);
  return bpe;
}

void Bpe::read_vocab(const Json& vocab, std::string_view origin) {
  const Json::Object& entries = vocab.as_object();
  // Gaps in the numbering are legal, but an id is an index here: a few stray ids must not buy gigabytes.
  int64_t limit = static_cast<int64_t>(entries.size()) * 2 + 65536;
  int64_t highest = -1;
  for (const auto& [token, id] : entries) {
    int64_t value = id.as_int();
    SF_CHECK(value >= 0 && value < limit, Exit::kData, "{}: model.vocab: id {} of \"{}\" is out of range [0, {})",
             origin, value, token, limit);
    highest = std::max(highest, value);
  }
  size_t size = static_cast<size_t>(highest + 1);
  tokens_.resize(size);
  bytes_.resize(size);
  present_.resize(size);
  words_.resize(std::bit_ceil(entries.size() * 2 + 2));
  for (const auto& [token, id] : entries) {
    size_t at = static_cast<size_t>(id.as_int());
    SF_CHECK(!present_[at], Exit::kData, "{}: model.vocab: id {} belongs to both \"{}\" and \"{}\"", origin, at,
             tokens_[at], token);
    present_[at] = true;
    tokens_[at] = token;
    if (!token_to_bytes(token, bytes_[at])) {
      bytes_[at].clear();
      continue;
    }
    uint64_t hash = xxh3_64(bytes_[at]);
    size_t slot = hash & (words_.size() - 1);
    while (words_[slot].id >= 0) slot = (slot + 1) & (words_.size() - 1);
    words_[slot] = {hash, static_cast<int32_t>(at)};
  }
}

void Bpe::read_bytes() {
  for (unsigned b = 0; b < 256; ++b) byte_ids_[b] = id_of_bytes(std::string(1, static_cast<char>(b)));
}

void Bpe::read_merges(const Json& merges, std::string_view origin) {
  const Json::Array& list = merges.as_array();
  merges_.resize(std::bit_ceil(list.size() * 2 + 2));
  filter_.resize(std::max<size_t>(merges_.size() / 8, 1));
  std::string left, right;
  uint32_t rank = 0;
  for (size_t i = 0; i < list.size(); ++i, ++rank) {
    std::string_view a, b;
    if (list[i].is_string()) {
      std::string_view line = list[i].as_string();
      if (line.starts_with("#version")) {
        --rank;
        continue;
      }
      size_t space = line.find(' ');
      SF_CHECK(space != line.npos && line.find(' ', space + 1) == line.npos, Exit::kData,
               "{}: model.merges[{}]: wanted two parts and one space, found \"{}\"", origin, i, line);
      a = line.substr(0, space), b = line.substr(space + 1);
    } else {
      const Json::Array& parts = list[i].as_array();
      SF_CHECK(parts.size() == 2, Exit::kData, "{}: model.merges[{}]: wanted two parts, found {}", origin, i,
               parts.size());
      a = parts[0].as_string(), b = parts[1].as_string();
    }
    bool plain = token_to_bytes(a, left);
    plain = token_to_bytes(b, right) && plain;
    int32_t x = plain ? id_of_bytes(left) : -1, y = plain ? id_of_bytes(right) : -1;
    int32_t both = plain ? id_of_bytes(left + right) : -1;
    SF_CHECK(x >= 0 && y >= 0 && both >= 0, Exit::kData, "{}: model.merges[{}]: \"{}\" is not in the vocabulary",
             origin, i,
             x < 0   ? std::string(a)
             : y < 0 ? std::string(b)
                     : std::string(a) + std::string(b));
    uint64_t pair = uint64_t(uint32_t(x)) << 32 | uint32_t(y);
    size_t slot = mix(pair) & (merges_.size() - 1);
    while (merges_[slot].pair != kNoPair && merges_[slot].pair != pair) slot = (slot + 1) & (merges_.size() - 1);
    merges_[slot] = {pair, rank, both};
    uint64_t bit = mix(pair) >> 24;
    filter_[bit / 64 & (filter_.size() - 1)] |= uint64_t{1} << (bit & 63);
  }
}

int32_t Bpe::id_of_bytes(std::string_view bytes) const {
  if (bytes.empty()) return -1;
  uint64_t hash = xxh3_64(bytes);
  for (size_t slot = hash & (words_.size() - 1); words_[slot].id >= 0; slot = (slot + 1) & (words_.size() - 1))
    if (words_[slot].hash == hash && bytes_[static_cast<size_t>(words_[slot].id)] == bytes) return words_[slot].id;
  return -1;
}

const Bpe::Merge* Bpe::find(int32_t left, int32_t right) const {
  uint64_t pair = uint64_t(uint32_t(left)) << 32 | uint32_t(right), hash = mix(pair), bit = hash >> 24;
  if (!(filter_[bit / 64 & (filter_.size() - 1)] >> (bit & 63) & 1)) return nullptr;
  for (size_t slot = hash & (merges_.size() - 1); merges_[slot].pair != kNoPair;
       slot = (slot + 1) & (merges_.size() - 1))
    if (merges_[slot].pair == pair) return &merges_[slot];
  return nullptr;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (piece.size() > sizeof CachedPiece::key) return merge(piece, out);
  CachedPiece& slot = cache_slot(serial_, piece);
  if (slot.owner == serial_ && slot.length == piece.size() && same_bytes(slot.key, piece.data(), piece.size())) {
    out.insert(out.end(), slot.ids, slot.ids + slot.count);
    return;
  }
  size_t before = out.size();
  merge(piece, out);
  size_t count = out.size() - before;
  if (count > std::size(slot.ids)) return;
  slot.owner = serial_;
  slot.length = static_cast<uint8_t>(piece.size());
  slot.count = static_cast<uint8_t>(count);
  std::memcpy(slot.key, piece.data(), piece.size());
  std::copy(out.begin() + static_cast<ptrdiff_t>(before), out.end(), slot.ids);
}

void Bpe::merge(std::string_view piece, std::vector<int32_t>& out) const {
  if (ignore_merges_) {
    if (int32_t whole = id_of_bytes(piece); whole >= 0) {
      out.push_back(whole);
      return;
    }
  }
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  for (unsigned char b : piece) {
    int32_t id = byte_ids_[b] >= 0 ? byte_ids_[b] : unknown_;
    if (id >= 0) symbols.push_back(id);
  }
  if (symbols.size() <= kShort)
    merge_short(symbols);
  else
    merge_long(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
  if (symbols.capacity() > (size_t{1} << 20)) symbols = {};
}

void Bpe::merge_short(std::vector<int32_t>& symbols) const {
  uint32_t ranks[kShort];  // of the pair that starts at a symbol
  int32_t results[kShort];
  size_t n = symbols.size();
  auto look = [&](size_t i) {
    const Merge* merge = i + 1 < n ? find(symbols[i], symbols[i + 1]) : nullptr;
    ranks[i] = merge ? merge->rank : kNoRank;
    results[i] = merge ? merge->id : -1;
  };
  for (size_t i = 0; i < n; ++i) look(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNoRank) break;
    symbols[best] = results[best];
    --n;
    std::copy(symbols.begin() + static_cast<ptrdiff_t>(best) + 2, symbols.begin() + static_cast<ptrdiff_t>(n) + 1,
              symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(ranks + best + 2, ranks + n + 1, ranks + best + 1);
    std::copy(results + best + 2, results + n + 1, results + best + 1);
    look(best);
    if (best > 0) look(best - 1);
  }
  symbols.resize(n);
}

void Bpe::merge_long(std::vector<int32_t>& symbols) const {
  struct Candidate {
    uint32_t rank;
    uint32_t at;
    uint64_t pair;  // as it was when pushed: a changed neighbour makes the entry stale
    int32_t id;
    bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  SF_CHECK(symbols.size() < kNoRank, Exit::kData, "a piece of {} bytes is too long", symbols.size());
  uint32_t n = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> previous(n), next(n);
  std::priority_queue<Candidate> queue;
  auto look = [&](uint32_t i) {
    if (next[i] >= n) return;
    if (const Merge* merge = find(symbols[i], symbols[next[i]])) queue.push({merge->rank, i, merge->pair, merge->id});
  };
  for (uint32_t i = 0; i < n; ++i) previous[i] = i - 1, next[i] = i + 1;
  for (uint32_t i = 0; i < n; ++i) look(i);
  while (!queue.empty()) {
    Candidate best = queue.top();
    queue.pop();
    uint32_t right = symbols[best.at] < 0 ? n : next[best.at];
    if (right >= n) continue;
    if (best.pair != (uint64_t(uint32_t(symbols[best.at])) << 32 | uint32_t(symbols[right]))) continue;
    symbols[best.at] = best.id;
    symbols[right] = -1;
    next[best.at] = next[right];
    if (next[right] < n) previous[next[right]] = best.at;
    if (best.at > 0 && previous[best.at] < n) look(previous[best.at]);
    look(best.at);
  }
  std::erase(symbols, -1);
}

}  // namespace sf::text
