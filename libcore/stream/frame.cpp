// SPDX-License-Identifier: Apache-2.0
#include "stream/frame.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/utf8.h"

namespace sf::stream {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little endian");

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

constexpr size_t kAskCountsBytes = 3 * sizeof(uint32_t);

std::optional<size_t> limit_of(uint16_t kind) {
  switch (static_cast<Kind>(kind)) {
    case Kind::kChunk:
      return kChunkBytes;
    case Kind::kAsk:
      return kAskCountsBytes + kMaxAskPositions * sizeof(uint64_t);
    case Kind::kHello:
    case Kind::kWelcome:
    case Kind::kRefused:
    case Kind::kAlive:
    case Kind::kBye:
    case Kind::kByeAck:
    case Kind::kFailed:
    case Kind::kWho:
    case Kind::kSample:
      return kMaxTextBytes;
  }
  return std::nullopt;
}

std::span<const std::byte> as_span(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t row_of(const Json& header) {
  int64_t row = header.at("row").as_int();
  SF_CHECK(row >= 0, Exit::kData, "sample header: row {} is negative", row);
  return static_cast<uint64_t>(row);
}

// The frame at byte `at` of a record, which moves behind it.
Frame next_frame(std::span<const std::byte> bytes, size_t& at, Kind wanted, bool check_payload) {
  FrameHeader header = decode_header(bytes.subspan(at));
  SF_CHECK(header.kind == wanted, Exit::kData, "byte {}: wanted a frame of kind {}, found kind {}", at,
           static_cast<int>(wanted), static_cast<int>(header.kind));
  SF_CHECK(header.length <= bytes.size() - at - kFrameHeaderBytes, Exit::kData,
           "byte {}: a payload of {} bytes is cut short", at, header.length);
  Frame frame{header, bytes.subspan(at + kFrameHeaderBytes, header.length)};
  SF_CHECK(!check_payload || payload_intact(header, frame.payload), Exit::kData,
           "byte {}: damaged payload (XXH3 differs)", at);
  at += kFrameHeaderBytes + header.length;
  return frame;
}

// Bytes that are not UTF-8 are spelled out; a cut falls between two characters.
std::string bounded_reason(std::string_view reason) {
  std::string text = printable(reason);
  size_t end = std::min(text.size(), kMaxReasonBytes);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

NamedTensor tensor_of(const Json& json, uint64_t& total, uint64_t max_bytes, HostPool* pool) {
  const std::string& name = json.at("name").as_string();
  SF_CHECK(!name.empty() && name.size() <= kMaxNameBytes, Exit::kData, "tensor name of {} bytes, wanted 1 to {}",
           name.size(), kMaxNameBytes);
  const std::string& dtype_name = json.at("dtype").as_string();
  auto dtype = dtype_from_name(dtype_name);
  SF_CHECK(dtype, Exit::kData, "tensor {} has unknown dtype {}", name, dtype_name.substr(0, 16));
  const auto& extents = json.at("shape").as_array();
  SF_CHECK(extents.size() <= kMaxRank, Exit::kData, "tensor {} has {} dimensions, at most {} allowed", name,
           extents.size(), kMaxRank);
  Shape shape;
  for (const Json& extent : extents) shape.push_back(extent.as_int());
  auto count = static_cast<uint64_t>(numel(shape));
  SF_CHECK(count <= max_bytes / size_of(*dtype) && total + count * size_of(*dtype) <= max_bytes, Exit::kData,
           "tensor {} {} takes the sample over {} bytes", name, to_string(shape), max_bytes);
  total += count * size_of(*dtype);
  return {name, pool ? pool->unfilled(*dtype, std::move(shape)) : HostTensor(*dtype, std::move(shape))};
}

}  // namespace

FrameHeader header_for(Kind kind, uint64_t position, uint32_t index, std::span<const std::byte> payload) {
  auto limit = limit_of(static_cast<uint16_t>(kind));
  SF_ASSERT(limit && payload.size() <= *limit);
  return {kind, position, index, static_cast<uint32_t>(payload.size()), xxh3_64(payload)};
}

std::array<std::byte, kFrameHeaderBytes> encode(const FrameHeader& header) {
  std::array<std::byte, kFrameHeaderBytes> bytes{};
  store(&bytes[0], kWireMagic);
  store(&bytes[4], kWireVersion);
  store(&bytes[6], static_cast<uint16_t>(header.kind));
  store(&bytes[8], header.position);
  store(&bytes[16], header.index);
  store(&bytes[20], header.length);
  store(&bytes[24], header.hash);
  store(&bytes[32], xxh3_64(std::span<const std::byte>(bytes.data(), 32)));
  return bytes;
}

FrameHeader decode_header(std::span<const std::byte> bytes) {
  SF_CHECK(bytes.size() >= kFrameHeaderBytes, Exit::kData, "a frame header has {} bytes, found {}", kFrameHeaderBytes,
           bytes.size());
  SF_CHECK(load<uint32_t>(&bytes[0]) == kWireMagic, Exit::kData, "not a ShardForge frame (magic {:#010x})",
           load<uint32_t>(&bytes[0]));
  SF_CHECK(load<uint64_t>(&bytes[32]) == xxh3_64(bytes.first(32)), Exit::kData, "damaged frame header");
  auto version = load<uint16_t>(&bytes[4]);
  SF_CHECK(version == kWireVersion, Exit::kProtocol,
           "wire version: wanted {}, found {}; use the same ShardForge on both sides", kWireVersion, version);
  auto kind = load<uint16_t>(&bytes[6]);
  auto limit = limit_of(kind);
  SF_CHECK(limit, Exit::kData, "unknown frame kind {}", kind);
  FrameHeader header{static_cast<Kind>(kind), load<uint64_t>(&bytes[8]), load<uint32_t>(&bytes[16]),
                     load<uint32_t>(&bytes[20]), load<uint64_t>(&bytes[24])};
  SF_CHECK(header.length <= *limit, Exit::kData, "frame of kind {} has {} bytes, at most {} allowed", kind,
           header.length, *limit);
  return header;
}

bool payload_intact(const FrameHeader& header, std::span<const std::byte> payload) {
  if (payload.size() != header.length) return false;
  return fault("stream.skip_chunk_hash") || xxh3_64(payload) == header.hash;
}

Json json_payload(const FrameHeader& header, std::span<const std::byte> payload) {
  SF_CHECK(payload_intact(header, payload), Exit::kData, "damaged payload of a frame of kind {}",
           static_cast<int>(header.kind));
  return Json::parse(as_text(payload), "frame");
}

std::vector<std::byte> encode(const Ask& ask) {
  size_t count = ask.size();
  SF_ASSERT(count <= kMaxAskPositions);
  std::vector<std::byte> bytes(kAskCountsBytes + count * sizeof(uint64_t));
  store(&bytes[0], static_cast<uint32_t>(ask.now.size()));
  store(&bytes[4], static_cast<uint32_t>(ask.want.size()));
  store(&bytes[8], static_cast<uint32_t>(ask.landed.size()));
  std::byte* to = bytes.data() + kAskCountsBytes;
  for (const auto* list : {&ask.now, &ask.want, &ask.landed}) {
    for (uint64_t position : *list) {
      store(to, position);
      to += sizeof position;
    }
  }
  return bytes;
}

Ask decode_ask(std::span<const std::byte> payload) {
  SF_CHECK(payload.size() >= kAskCountsBytes, Exit::kData, "an ask has {} bytes, found {}", kAskCountsBytes,
           payload.size());
  uint64_t counts[3], total = 0;
  for (size_t i = 0; i < 3; ++i) total += counts[i] = load<uint32_t>(&payload[4 * i]);
  SF_CHECK(total <= kMaxAskPositions && payload.size() == kAskCountsBytes + total * sizeof(uint64_t), Exit::kData,
           "an ask of {} positions has {} bytes", total, payload.size());
  Ask ask;
  const std::byte* from = payload.data() + kAskCountsBytes;
  std::vector<uint64_t>* lists[3] = {&ask.now, &ask.want, &ask.landed};
  for (int i = 0; i < 3; ++i) {
    for (uint64_t k = 0; k < counts[i]; ++k, from += sizeof(uint64_t)) lists[i]->push_back(load<uint64_t>(from));
  }
  return ask;
}

std::vector<ChunkPlace> chunks_of(const std::vector<NamedTensor>& tensors) {
  std::vector<ChunkPlace> chunks;
  for (size_t t = 0; t < tensors.size(); ++t) {
    size_t bytes = tensors[t].tensor.bytes();
    for (size_t offset = 0; offset < bytes; offset += kChunkBytes) {
      chunks.push_back({t, offset, std::min(kChunkBytes, bytes - offset)});
    }
  }
  return chunks;
}

std::string sample_header(const Sample& sample) {
  SF_CHECK(sample.tensors.size() <= kMaxTensors, Exit::kData, "sample of row {} has {} tensors, at most {} allowed",
           sample.row, sample.tensors.size(), kMaxTensors);
  SF_CHECK(sample.bytes() <= kMaxSampleBytes, Exit::kData, "sample of row {} has {} bytes, at most {} allowed",
           sample.row, sample.bytes(), kMaxSampleBytes);
  SF_ASSERT(!sample.void_reason || sample.tensors.empty());
  Json json = Json::object();
  json.set("row", sample.row);
  if (sample.void_reason) json.set("void", bounded_reason(*sample.void_reason));
  Json tensors = Json::array();
  for (const auto& [name, tensor] : sample.tensors) {
    SF_CHECK(name.size() <= kMaxNameBytes && tensor.shape().size() <= kMaxRank, Exit::kData,
             "tensor {} of row {}: name over {} bytes or more than {} dimensions", name, sample.row, kMaxNameBytes,
             kMaxRank);
    Json shape = Json::array();
    for (int64_t extent : tensor.shape()) shape.push(extent);
    Json item = Json::object();
    item.set("name", name).set("dtype", name_of(tensor.dtype())).set("shape", std::move(shape));
    tensors.push(std::move(item));
  }
  json.set("tensors", std::move(tensors));
  return json.dump();
}

void for_each_frame(const Sample& sample, const std::function<void(const Frame&)>& sink) {
  std::string text = sample_header(sample);
  std::vector<ChunkPlace> chunks = chunks_of(sample.tensors);
  sink(
      {header_for(Kind::kSample, sample.position, static_cast<uint32_t>(chunks.size()), as_span(text)), as_span(text)});
  uint32_t index = 0;
  for (const ChunkPlace& chunk : chunks) {
    std::span<const std::byte> payload(sample.tensors[chunk.tensor].tensor.data() + chunk.offset, chunk.length);
    sink({header_for(Kind::kChunk, sample.position, index++, payload), payload});
  }
}

Assembler::Assembler(const Frame& head, uint64_t max_bytes, HostPool* pool) {
  uint64_t position = head.header.position;
  Json json = Json::parse(as_text(head.payload), fmt::format("sample header of position {}", position));
  sample_.position = position;
  sample_.row = row_of(json);
  const auto& tensors = json.at("tensors").as_array();
  SF_CHECK(tensors.size() <= kMaxTensors, Exit::kData, "sample header of position {}: {} tensors, at most {} allowed",
           position, tensors.size(), kMaxTensors);
  if (const Json* reason = json.find("void")) {
    SF_CHECK(tensors.empty(), Exit::kData, "position {} is void and still has tensors", position);
    SF_CHECK(reason->as_string().size() <= kMaxReasonBytes, Exit::kData, "position {}: a void reason over {} bytes",
             position, kMaxReasonBytes);
    sample_.void_reason = reason->as_string();
  }
  uint64_t total = 0;
  for (const Json& item : tensors) sample_.tensors.push_back(tensor_of(item, total, max_bytes, pool));
  chunks_ = chunks_of(sample_.tensors);
  SF_CHECK(chunks_.size() == head.header.index, Exit::kData,
           "position {}: its tensors make {} chunks, its header counts {}", position, chunks_.size(),
           head.header.index);
  have_.assign(chunks_.size(), false);
  missing_ = chunks_.size();
}

Assembler::Got Assembler::put(const FrameHeader& header, std::span<const std::byte> payload) {
  SF_CHECK(header.index < chunks_.size(), Exit::kData, "position {} has {} chunks, found one numbered {}",
           sample_.position, chunks_.size(), header.index);
  const ChunkPlace& chunk = chunks_[header.index];
  if (payload.size() != chunk.length || !payload_intact(header, payload)) return Got::kCorrupt;
  if (have_[header.index]) return Got::kRepeat;
  std::memcpy(sample_.tensors[chunk.tensor].tensor.data() + chunk.offset, payload.data(), payload.size());
  have_[header.index] = true;
  --missing_;
  return Got::kNew;
}

Sample Assembler::take() {
  SF_ASSERT(complete());
  return std::move(sample_);
}

std::string encode_record(const Sample& sample) {
  std::string record;
  for_each_frame(sample, [&](const Frame& frame) {
    auto header = encode(frame.header);
    record.append(reinterpret_cast<const char*>(header.data()), header.size());
    record.append(reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size());
  });
  return record;
}

RecordInfo walk_record(std::span<const std::byte> bytes, bool check_payloads) {
  size_t at = 0;
  Frame head = next_frame(bytes, at, Kind::kSample, true);
  Json json = Json::parse(as_text(head.payload), "sample header");
  for (uint32_t i = 0; i < head.header.index; ++i) {
    size_t start = at;
    Frame chunk = next_frame(bytes, at, Kind::kChunk, check_payloads);
    SF_CHECK(chunk.header.position == head.header.position && chunk.header.index == i, Exit::kData,
             "byte {}: wanted chunk {} of position {}, found chunk {} of position {}", start, i, head.header.position,
             chunk.header.index, chunk.header.position);
  }
  return {head.header.position, row_of(json), json.contains("void"), at};
}

Sample decode_record(std::span<const std::byte> bytes, size_t& used) {
  size_t at = 0;
  Frame head = next_frame(bytes, at, Kind::kSample, true);
  // A record cannot hold more tensor bytes than there are bytes left to read: the bound on what is allocated.
  Assembler assembler(head, std::min<uint64_t>(kMaxSampleBytes, bytes.size() - at));
  while (!assembler.complete()) {
    size_t start = at;
    Frame chunk = next_frame(bytes, at, Kind::kChunk, false);
    SF_CHECK(chunk.header.position == head.header.position, Exit::kData,
             "byte {}: a chunk of position {} among those of {}", start, chunk.header.position, head.header.position);
    SF_CHECK(assembler.put(chunk.header, chunk.payload) == Assembler::Got::kNew, Exit::kData,
             "byte {}: chunk {} is damaged (XXH3 differs) or came twice", start, chunk.header.index);
  }
  used = at;
  return assembler.take();
}

}  // namespace sf::stream
