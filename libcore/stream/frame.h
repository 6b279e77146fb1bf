// SPDX-License-Identifier: Apache-2.0
// The wire: pure bytes in, structs out. A frame is a header of 40 bytes and a payload; a sample is one kSample frame
// (names, dtypes, shapes) and its kChunk frames of at most 1 MiB, cut inside each tensor. A feature directory stores
// the same frames. All integers are little endian; every length is bounded before anything is allocated.
//
//   0  u32 magic "SFSW"        16 u32 index  (kChunk: which; kSample: how many)
//   4  u16 wire version        20 u32 length of the payload in bytes
//   6  u16 kind                24 u64 XXH3 of the payload
//   8  u64 position            32 u64 XXH3 of bytes 0..31
//
// This layout is the same in every wire version, so that a reader can name the version it does not speak.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_pool.h"
#include "stream/sample.h"

namespace sf::stream {

inline constexpr uint32_t kWireMagic = 0x57534653;  // "SFSW"
inline constexpr uint16_t kWireVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 40;
inline constexpr size_t kChunkBytes = size_t{1} << 20;
inline constexpr size_t kMaxTextBytes = size_t{64} << 10;  // JSON payloads
inline constexpr size_t kMaxAskPositions = 4096;           // of one kAsk frame, all lists together
inline constexpr size_t kMaxTensors = 64;
inline constexpr size_t kMaxRank = 8;
inline constexpr size_t kMaxNameBytes = 128;
inline constexpr size_t kMaxReasonBytes = 1024;
inline constexpr uint64_t kMaxSampleBytes = uint64_t{4} << 30;

enum class Kind : uint16_t {
  kHello = 1,    // trainer -> producer, control: who asks, and what it speaks
  kWelcome = 2,  // producer -> trainer, control: contract, limits
  kRefused = 3,  // both ways, control: status and reason; a trainer's is a hello with both
  kAlive = 4,    // both ways, control: heartbeat; the producer's says what it computes
  kBye = 5,      // trainer -> producer, control
  kByeAck = 6,   // producer -> trainer, control: BYE or refusal has come
  kFailed = 7,   // producer -> trainer, control: it ends, and why
  kWho = 8,      // producer -> trainer, control: say hello again
  kAsk = 9,      // trainer -> producer, data: positions
  kSample = 10,  // producer -> trainer, data: what the chunks of a position hold
  kChunk = 11,   // producer -> trainer, data
};

struct FrameHeader {
  Kind kind = Kind::kAlive;
  uint64_t position = 0;
  uint32_t index = 0;
  uint32_t length = 0;
  uint64_t hash = 0;
};
struct Frame {
  FrameHeader header;
  std::span<const std::byte> payload;
};

// The header of this payload, hash and length filled in. Requires: payload within its kind's limit.
FrameHeader header_for(Kind kind, uint64_t position, uint32_t index, std::span<const std::byte> payload);
std::array<std::byte, kFrameHeaderBytes> encode(const FrameHeader& header);
// kData: not a frame, damaged, of an unknown kind, or longer than its kind may be. kProtocol: another wire version.
FrameHeader decode_header(std::span<const std::byte> bytes);
bool payload_intact(const FrameHeader& header, std::span<const std::byte> payload);
// Length and hash checked (kData), then parsed.
Json json_payload(const FrameHeader& header, std::span<const std::byte> payload);

// What a trainer rank asks: `now` (a caller waits for it), `want` (soon); and what is no longer in flight to it, looked
// at first: `landed` (handed to its caller, or damaged or lost and asked for again in this very frame).
struct Ask {
  std::vector<uint64_t> now, want, landed;

  size_t size() const { return now.size() + want.size() + landed.size(); }
};
std::vector<std::byte> encode(const Ask& ask);
Ask decode_ask(std::span<const std::byte> payload);  // kData

// Where chunk i of a sample lies.
struct ChunkPlace {
  size_t tensor = 0, offset = 0, length = 0;
};
std::vector<ChunkPlace> chunks_of(const std::vector<NamedTensor>& tensors);

std::string sample_header(const Sample& sample);  // payload of kSample; kData if a limit is passed
// Calls `sink` with the kSample frame and each kChunk frame. The spans live as long as the sample and the call.
void for_each_frame(const Sample& sample, const std::function<void(const Frame&)>& sink);

// Puts one sample together from frames in any order, with repeats. Memory is what the header said, checked first.
class Assembler {
 public:
  enum class Got { kNew, kRepeat, kCorrupt };

  // Of an intact kSample frame. kData: its payload is no sample header, passes a limit, or counts other chunks.
  // Large tensors take their memory from `pool`, if there is one.
  explicit Assembler(const Frame& head, uint64_t max_bytes = kMaxSampleBytes, HostPool* pool = nullptr);
  // kCorrupt: length or hash is wrong, nothing is kept. kData: there is no such chunk.
  Got put(const FrameHeader& header, std::span<const std::byte> payload);
  bool complete() const { return missing_ == 0; }
  size_t bytes() const { return sample_.bytes(); }
  size_t missing() const { return missing_; }
  Sample take();  // Requires: complete()

 private:
  Sample sample_;
  std::vector<ChunkPlace> chunks_;
  std::vector<bool> have_;
  size_t missing_ = 0;
};

// A record of a feature file: the sample's frames one after another.
std::string encode_record(const Sample& sample);
struct RecordInfo {
  uint64_t position = 0, row = 0;
  bool is_void = false;
  size_t bytes = 0;  // of the whole record
};
// Walks the record at the front of `bytes` without reading its tensors, or with their hashes checked. kData.
RecordInfo walk_record(std::span<const std::byte> bytes, bool check_payloads);
// Reads one record from the front of `bytes`; `used` gets its length. kData says at which byte and why.
Sample decode_record(std::span<const std::byte> bytes, size_t& used);

}  // namespace sf::stream
