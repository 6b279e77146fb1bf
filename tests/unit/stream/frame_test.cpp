// SPDX-License-Identifier: Apache-2.0
// The wire as bytes: round trips, the stored form of version 1, and hostile input.
#include "stream/frame.h"

#include <cstring>

#include "base/file.h"
#include "base/hash.h"
#include "support.h"

namespace sf::stream {
namespace {

std::span<const std::byte> span_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string unhex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

struct Stored {
  std::string bytes = read_file(SF_STREAM_TEST_DIR "/wire_v1.bin");
  Json json = Json::parse(read_file(SF_STREAM_TEST_DIR "/wire_v1.json"), "wire_v1.json");
};

// A sample with a random number of tensors of random types and extents, empty ones and 0-d ones among them.
Sample random_sample(uint64_t seed) {
  Rng rng(seed, "random sample");
  Sample sample;
  sample.position = rng.bits(0);
  sample.row = rng.below(1u << 30, 1);
  if (rng.below(8, 2) == 0) {
    sample.void_reason = "because";
    return sample;
  }
  const Dtype types[] = {Dtype::kF32, Dtype::kBF16, Dtype::kI64, Dtype::kU8, Dtype::kBool, Dtype::kF16};
  for (uint64_t t = 0; t < rng.below(6, 3); ++t) {
    Shape shape;
    for (uint64_t d = 0; d < rng.below(4, 4, t); ++d) shape.push_back(static_cast<int64_t>(rng.below(9, 5 + t, d)));
    HostTensor tensor(types[rng.below(6, 20, t)], shape);
    for (size_t i = 0; i < tensor.bytes(); ++i) tensor.data()[i] = static_cast<std::byte>(rng.bits(30 + t, i));
    sample.tensors.push_back({fmt::format("t{}", t), tensor});
  }
  return sample;
}

TEST(Wire, EveryFrameHasTheStoredBytes) {
  Stored stored;
  std::string written;
  for (const Json& item : stored.json.at("frames").as_array()) {
    std::string payload = unhex(item.at("payload").as_string());
    auto kind = static_cast<Kind>(item.at("kind").as_int());
    auto header = encode(header_for(kind, static_cast<uint64_t>(item.at("position").as_int()),
                                    static_cast<uint32_t>(item.at("index").as_int()), span_of(payload)));
    written.append(reinterpret_cast<const char*>(header.data()), header.size());
    written += payload;
  }
  EXPECT_EQ(written, stored.bytes);
}

TEST(Wire, TheStoredSamplesReadBackAndAreWrittenTheSame) {
  Stored stored;
  auto bytes = span_of(stored.bytes);
  size_t used = 0, void_used = 0;
  Sample sample = decode_record(bytes, used);
  EXPECT_EQ(sample.position, 12u);
  EXPECT_EQ(sample.row, 7u);
  EXPECT_EQ(sample.at("input_ids").as<int32_t>()[2], 49151);
  EXPECT_EQ(sample.at("final_norm").shape(), (Shape{2, 2}));
  Sample none = decode_record(bytes.subspan(used), void_used);
  EXPECT_EQ(none.void_reason, "no supervised token");
  EXPECT_EQ(encode_record(sample) + encode_record(none), stored.bytes.substr(0, used + void_used));
}

TEST(Wire, TheStoredAskReadsBack) {
  Stored stored;
  std::string payload = unhex(stored.json.at("frames").as_array()[4].at("payload").as_string());
  Ask ask = decode_ask(span_of(payload));
  EXPECT_EQ(ask.now, (std::vector<uint64_t>{12}));
  EXPECT_EQ(ask.want, (std::vector<uint64_t>{13, 14, uint64_t{1} << 40}));
  EXPECT_EQ(ask.landed, (std::vector<uint64_t>{9}));
}

TEST(Frame, AnySampleRoundTripsInAnyOrderOfChunks) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Sample sample = random_sample(seed);
    std::string record = encode_record(sample);
    size_t used = 0;
    Sample back = decode_record(span_of(record), used);
    EXPECT_EQ(used, record.size());
    EXPECT_EQ(back.position, sample.position);
    ASSERT_EQ(digest_of(back), digest_of(sample)) << seed;
    EXPECT_EQ(walk_record(span_of(record), true).bytes, record.size());
  }
}

TEST(Frame, AChunkNeverPasses1MiBAndTensorsAreCutInside) {
  Sample sample;
  sample.tensors.push_back({"a", HostTensor(Dtype::kU8, {(1 << 20) + 1})});
  sample.tensors.push_back({"b", HostTensor(Dtype::kU8, {3})});
  std::vector<size_t> lengths;
  for_each_frame(sample, [&](const Frame& frame) {
    if (frame.header.kind == Kind::kChunk) lengths.push_back(frame.payload.size());
  });
  EXPECT_EQ(lengths, (std::vector<size_t>{size_t{1} << 20, 1, 3}));
}

TEST(Frame, AChangedBitAnywhereInARecordIsFound) {
  Sample sample = random_sample(3);
  std::string record = encode_record(sample);
  ASSERT_GT(record.size(), 200u);
  for (size_t bit = 0; bit < record.size() * 8; ++bit) {
    std::string damaged = record;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    size_t used = 0;
    Exit code = code_of([&] { decode_record(span_of(damaged), used); });
    ASSERT_EQ(code, Exit::kData) << "bit " << bit;
  }
}

TEST(Frame, ARecordCutAnywhereIsFound) {
  std::string record = encode_record(random_sample(3));
  for (size_t length = 0; length < record.size(); ++length) {
    size_t used = 0;
    ASSERT_EQ(code_of([&] { decode_record(span_of(record).first(length), used); }), Exit::kData) << length;
    ASSERT_EQ(code_of([&] { walk_record(span_of(record).first(length), false); }), Exit::kData) << length;
  }
}

// The hashes are right, so only the bounds can refuse: what a hostile peer sends.
std::string forged(const std::string& header_json, uint32_t chunks) {
  auto header = encode(header_for(Kind::kSample, 1, chunks, span_of(header_json)));
  return std::string(reinterpret_cast<const char*>(header.data()), header.size()) + header_json;
}

TEST(Frame, AHeaderThatPromisesTooMuchIsRefusedBeforeAllocation) {
  for (
      const char* text : {
          R"({"row":1,"tensors":[{"name":"a","dtype":"F32","shape":[4611686018427387904]}]})",
          R"({"row":1,"tensors":[{"name":"a","dtype":"F32","shape":[4294967296,4294967296]}]})",
          R"({"row":1,"tensors":[{"name":"a","dtype":"F32","shape":[1073741825]}]})",
          R"({"row":1,"tensors":[{"name":"a","dtype":"U8","shape":[4294967296]},{"name":"b","dtype":"U8","shape":[1]}]})",
          R"({"row":1,"tensors":[{"name":"a","dtype":"F32","shape":[-1]}]})",
          R"({"row":1,"tensors":[{"name":"a","dtype":"F32","shape":[1,1,1,1,1,1,1,1,1]}]})",
          R"({"row":1,"tensors":[{"name":"a","dtype":"C64","shape":[1]}]})",
          R"({"row":1,"tensors":[{"name":"","dtype":"F32","shape":[1]}]})",
          R"({"row":-1,"tensors":[]})",
          R"({"row":1,"void":"x","tensors":[{"name":"a","dtype":"F32","shape":[1]}]})",
          R"({"row":1})",
          R"([])",
          R"({"row":1,"tensors":)",
      }) {
    size_t used = 0;
    std::string record = forged(text, 1);
    EXPECT_EQ(code_of([&] { decode_record(span_of(record), used); }), Exit::kData) << text;
    std::string head_text = text;
    Frame head{header_for(Kind::kSample, 1, 1, span_of(head_text)), span_of(head_text)};
    EXPECT_EQ(code_of([&] { Assembler assembler(head, 1 << 20); }), Exit::kData) << text;
  }
}

TEST(Frame, AHeaderThatCountsOtherChunksIsRefused) {
  std::string text = R"({"row":1,"tensors":[{"name":"a","dtype":"F32","shape":[1]}]})";
  for (uint32_t chunks : {0u, 2u, 4000000000u}) {
    Frame head{header_for(Kind::kSample, 1, chunks, span_of(text)), span_of(text)};
    EXPECT_EQ(code_of([&] { Assembler assembler(head); }), Exit::kData) << chunks;
  }
}

TEST(Frame, AnotherWireVersionIsAProtocolErrorThatNamesBoth) {
  auto bytes = encode(header_for(Kind::kBye, 0, 0, span_of("{}")));
  uint16_t version = 2;
  std::memcpy(&bytes[4], &version, sizeof version);
  uint64_t hash = xxh3_64(std::span<const std::byte>(bytes.data(), 32));
  std::memcpy(&bytes[32], &hash, sizeof hash);
  std::string message;
  EXPECT_EQ(code_of([&] { decode_header(bytes); }, &message), Exit::kProtocol);
  EXPECT_NE(message.find("wanted 1, found 2"), std::string::npos) << message;
}

TEST(Frame, RandomBytesAreNeverAFrame) {
  Rng rng(1, "noise");
  for (uint64_t i = 0; i < 2000; ++i) {
    std::vector<std::byte> noise(rng.below(200, i));
    for (size_t k = 0; k < noise.size(); ++k) noise[k] = static_cast<std::byte>(rng.bits(i + 1, k));
    ASSERT_EQ(code_of([&] { decode_header(noise); }), Exit::kData);
    Exit code = code_of([&] { decode_ask(noise); });
    ASSERT_TRUE(code == Exit::kData || code == Exit::kOk);
  }
}

TEST(Frame, AnAskOfMoreThanItsBytesHoldIsRefused) {
  Ask ask;
  ask.now = {1, 2, 3};
  auto bytes = encode(ask);
  EXPECT_EQ(code_of([&] { decode_ask(std::span(bytes).first(bytes.size() - 1)); }), Exit::kData);
  for (size_t field = 0; field < 3; ++field) {
    auto forged_ask = bytes;
    uint32_t huge = 0xffffffff;
    std::memcpy(&forged_ask[4 * field], &huge, sizeof huge);
    EXPECT_EQ(code_of([&] { decode_ask(forged_ask); }), Exit::kData) << field;
  }
}

TEST(Frame, AVoidReasonThatIsNotUtf8OrTooLongStillTravels) {
  Sample sample;
  sample.void_reason = "bad \xff byte";
  size_t used = 0;
  EXPECT_EQ(decode_record(span_of(encode_record(sample)), used).void_reason, "bad \\xff byte");
  sample.void_reason = std::string(5000, 'x');
  EXPECT_EQ(decode_record(span_of(encode_record(sample)), used).void_reason->size(), kMaxReasonBytes);
  sample.void_reason = std::string(kMaxReasonBytes - 1, 'x') + "\u00e9";
  EXPECT_EQ(decode_record(span_of(encode_record(sample)), used).void_reason->size(), kMaxReasonBytes - 1);
}

TEST(Place, EveryEpochVisitsEachRowOnceInAnotherOrder) {
  for (uint64_t rows : {1u, 2u, 7u, 64u, 1000u}) {
    std::vector<uint64_t> first, second;
    for (uint64_t epoch : {0u, 1u}) {
      std::vector<bool> seen(rows, false);
      for (uint64_t p = epoch * rows; p < (epoch + 1) * rows; ++p) {
        Place place = place_of(p, rows, 42);
        EXPECT_EQ(place.epoch, epoch);
        ASSERT_LT(place.row, rows);
        EXPECT_FALSE(seen[place.row]);
        seen[place.row] = true;
        (epoch == 0 ? first : second).push_back(place.row);
      }
    }
    if (rows >= 64) {
      EXPECT_NE(first, second);
    }
  }
}

TEST(Place, TheOrderIsPinned) {
  std::vector<uint64_t> rows;
  for (uint64_t p = 0; p < 10; ++p) rows.push_back(place_of(p, 5, 7).row);
  EXPECT_EQ(rows, (std::vector<uint64_t>{0, 3, 2, 1, 4, 4, 3, 0, 1, 2}));
}

TEST(ContractOf, ReadsBackAndNamesTheFirstDifference) {
  Contract contract = test_contract(), other = contract;
  EXPECT_EQ(Contract::from_json(contract.to_json()).digest(), contract.digest());
  EXPECT_EQ(contract.difference(other), std::nullopt);
  other.hidden = 9;
  other.data = "d1";
  EXPECT_EQ(contract.difference(other), "hidden: wanted 8, found 9");
  EXPECT_NE(contract.digest(), other.digest());
  other.hidden = contract.hidden;
  other.mask_rule = "reference";  // which changes the digest of the data, too
  EXPECT_EQ(contract.difference(other), "mask_rule: wanted \"turn\", found \"reference\"");
}

TEST(Place, OfEachRowInTheFirstEpochIsWhereTheOrderPutsIt) {
  const std::vector<uint64_t> positions = first_positions(50, 7);
  for (uint64_t row = 0; row < 50; ++row) EXPECT_EQ(place_of(positions[row], 50, 7).row, row);
}

TEST(ContractOf, EveryFieldIsCompared) {
  Json json = test_contract().to_json();
  for (const auto& [key, value] : json.as_object()) {
    Json changed = json;
    changed.set(key, value.is_int()     ? Json(value.as_int() + 1)
                     : value.is_array() ? Json(Json::Array{"9"})
                                        : Json("other"));
    auto difference = test_contract().difference(Contract::from_json(changed));
    ASSERT_TRUE(difference) << key;
    EXPECT_EQ(difference->substr(0, key.size() + 1), key + ":");
  }
}

TEST(ContractOf, AReaderComparesOnlyWhatItKnows) {
  Contract wanted;
  wanted.version = 1;
  wanted.target = "t0";
  EXPECT_EQ(wanted.unmet_by(test_contract()), std::nullopt);
  wanted.hidden = 16;
  EXPECT_EQ(wanted.unmet_by(test_contract()), "hidden: wanted 16, found 8");
}

TEST(ContractOf, HostileFieldsAreRefused) {
  for (auto [key, value] : std::vector<std::pair<const char*, Json>>{{"rows", Json(-1)},
                                                                     {"target", Json(std::string(5000, 'x'))},
                                                                     {"hidden", Json("8")},
                                                                     {"layers", Json("2")},
                                                                     {"version", Json(int64_t{1} << 40)},
                                                                     {"order_seed", Json(1e300)}}) {
    Json json = test_contract().to_json();
    json.set(key, value);
    EXPECT_EQ(code_of([&] { Contract::from_json(json); }), Exit::kData) << key;
  }
}

}  // namespace
}  // namespace sf::stream
