// SPDX-License-Identifier: Apache-2.0
// Bytes of the wire: headers, asks, records of frames, and the same frames one by one into an assembler.
#include <stdexcept>

#include "fuzz.h"
#include "stream/frame.h"

namespace {

using namespace sf::stream;

void record(std::span<const std::byte> bytes) {
  size_t used = 0;
  Sample sample = decode_record(bytes, used);
  if (used > bytes.size()) throw std::logic_error("more was read than is there");
  size_t again = 0;
  std::string text = encode_record(sample);
  Sample back = decode_record(std::as_bytes(std::span(text)), again);
  if (digest_of(back) != digest_of(sample) || again != text.size())
    throw std::logic_error("a record changes by writing");
}

// Whatever order and damage: an assembler refuses or completes.
void assemble(std::span<const std::byte> bytes) {
  std::optional<Assembler> parts;
  while (bytes.size() >= kFrameHeaderBytes) {
    FrameHeader header = decode_header(bytes);
    bytes = bytes.subspan(kFrameHeaderBytes);
    auto payload = bytes.subspan(0, std::min<size_t>(bytes.size(), header.length));
    bytes = bytes.subspan(payload.size());
    if (header.kind == Kind::kSample && !parts && payload_intact(header, payload))
      parts.emplace(Frame{header, payload}, uint64_t{1} << 20);
    else if (header.kind == Kind::kChunk && parts)
      parts->put(header, payload);
    else if (header.kind == Kind::kAsk)
      decode_ask(payload);
    if (parts && parts->complete()) return void(parts->take());
  }
}

// The same with hashes that hold, so that what is behind them is reached: the first line is a sample's header, the rest
// its chunks.
void behind_the_hash(std::string_view text) {
  std::string_view head = text.substr(0, std::min(text.find('\n'), kMaxTextBytes));
  text.remove_prefix(std::min(text.size(), head.size() + 1));
  auto payload = std::as_bytes(std::span(head));
  Assembler parts({header_for(Kind::kSample, 1, 2, payload), payload}, uint64_t{1} << 20);
  for (uint32_t index = 0; !parts.complete() && index < 4; ++index) {
    auto piece = std::as_bytes(std::span(text.substr(0, std::min<size_t>(text.size(), 12))));
    parts.put(header_for(Kind::kChunk, 1, index, piece), piece);
    text.remove_prefix(piece.size());
  }
  if (parts.complete()) parts.take();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto bytes = std::as_bytes(std::span(data, size));
  sf::fuzz::refused([&] { decode_header(bytes); });
  sf::fuzz::refused([&] { decode_ask(bytes); });
  sf::fuzz::refused([&] { walk_record(bytes, false); });
  sf::fuzz::refused([&] { record(bytes); });
  sf::fuzz::refused([&] { assemble(bytes); });
  sf::fuzz::refused([&] { behind_the_hash({reinterpret_cast<const char*>(data), size}); });
  return 0;
}
