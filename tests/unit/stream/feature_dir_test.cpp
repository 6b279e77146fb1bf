// SPDX-License-Identifier: Apache-2.0
#include "stream/feature_dir.h"

#include <cstring>

#include "base/hash.h"
#include "stream/frame.h"
#include "support.h"

namespace sf::stream {
namespace {

namespace fs = std::filesystem;

void fill(FeatureWriter& writer, const Contract& contract, uint64_t from, uint64_t to) {
  for (uint64_t p = from; p < to; ++p) writer.add(test_sample(contract, p));
}

void publish_all(const fs::path& dir, const Contract& contract) {
  FeatureWriter writer(dir, contract, 0, "test");
  fill(writer, contract, 0, contract.rows);
  writer.publish();
}

fs::path first_shard(const fs::path& dir) {
  return dir / "rows-0-00000.frames";
}

void flip(const fs::path& file, uint64_t at) {
  std::string bytes = read_file(file);
  bytes.at(at) ^= 1;
  UniqueFd fd = create_file(file);
  write_all(fd.get(), bytes, file);
}

TEST(FeatureDir, HoldsTheSamplesOfTheStreamForEveryEpoch) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  publish_all(tmp / "f", contract);
  auto source = DirSource::open(tmp / "f", contract);
  for (uint64_t p = 0; p < 30; ++p) {
    Sample got = source->get(p, soon());
    EXPECT_EQ(got.position, p);
    EXPECT_EQ(digest_of(got), digest_of(test_sample(contract, p)));
  }
}

TEST(FeatureDir, IsNotThereUntilItIsComplete) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  FeatureWriter writer(tmp / "f", contract, 0, "test");
  fill(writer, contract, 0, 10);
  EXPECT_FALSE(fs::exists(tmp / "f"));
  EXPECT_EQ(published_contract(tmp / "f"), std::nullopt);
  std::string message;
  EXPECT_EQ(code_of([&] { DirSource::open(tmp / "f", contract); }, &message), Exit::kNoInput);
  EXPECT_NE(message.find("unfinished"), std::string::npos) << message;
  writer.publish();
  EXPECT_FALSE(fs::exists(tmp / "f.partial"));
  EXPECT_FALSE(fs::exists(tmp / "f/.lock"));
  EXPECT_EQ(published_contract(tmp / "f")->digest(), contract.digest());
}

TEST(FeatureDir, AnInterruptedWriterGoesOnWhereItStopped) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  {
    FeatureWriter writer(tmp / "f", contract, 0, "test");
    fill(writer, contract, 0, 6);
  }
  FeatureWriter writer(tmp / "f", contract, 0, "test");
  EXPECT_EQ(writer.rows(), 6u);
  EXPECT_TRUE(writer.has(place_of(5, contract.rows, contract.order_seed).row));
  fill(writer, contract, 0, 10);
  writer.publish();
  EXPECT_EQ(inspect_features(tmp / "f").rows, 10u);
}

TEST(FeatureDir, ATornRecordIsDroppedAtEveryLengthAndWrittenAgain) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  size_t last = encode_record(test_sample(contract, 2)).size();
  for (size_t cut : {size_t{1}, size_t{39}, size_t{41}, last / 2, last - 1, last}) {
    fs::path dir = tmp / fmt::format("f{}", cut);
    fs::path partial = dir.string() + ".partial";
    {
      FeatureWriter writer(dir, contract, 0, "test");
      fill(writer, contract, 0, 3);
    }
    fs::resize_file(first_shard(partial), fs::file_size(first_shard(partial)) - cut);
    FeatureWriter writer(dir, contract, 0, "test");
    EXPECT_EQ(writer.rows(), 2u) << cut;
    fill(writer, contract, 0, 10);
    writer.publish();
    EXPECT_EQ(inspect_features(dir).rows, 10u) << cut;
  }
}

// `shards` of three rows each; the last record of the first is damaged: that row alone is written again.
void expect_one_row_again(uint64_t shards) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  for (uint64_t n = 0; n < shards; ++n) {
    FeatureWriter writer(tmp / "f", contract, 0, "test");  // each begins a shard of its own
    fill(writer, contract, 3 * n, 3 * n + 3);
  }
  fs::path shard = first_shard(tmp / "f.partial");
  flip(shard, fs::file_size(shard) - 1);
  FeatureWriter writer(tmp / "f", contract, 0, "test");
  EXPECT_EQ(writer.rows(), 3 * shards - 1);
  fill(writer, contract, 0, 10);
  writer.publish();
  EXPECT_EQ(inspect_features(tmp / "f").rows, 10u);
}

TEST(FeatureDir, ADamagedLastRecordIsNotKeptOnResume) {
  expect_one_row_again(1);
}

TEST(FeatureDir, DamageInAnEarlierShardIsWrittenAgainOnResume) {
  expect_one_row_again(2);
}

TEST(FeatureDir, WhatFurtherWritersLeftIsLookedOverByTheFirstWhereNoneIsAtWork) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  {
    FeatureWriter first(tmp / "f", contract, 0, "test"), second(tmp / "f", contract, 1, "test");
    fill(first, contract, 0, 3);
    fill(second, contract, 3, 7);
  }
  const fs::path shard = tmp / "f.partial/rows-1-00000.frames";
  flip(shard, fs::file_size(shard) - 1);
  FeatureWriter first(tmp / "f", contract, 0, "test", Others::kDone);
  EXPECT_EQ(first.rows(), 6u);
  FeatureWriter second(tmp / "f", contract, 1, "test", Others::kDone);
  EXPECT_EQ(second.rows(), 6u);
  fill(second, contract, 0, 10);
  second.close();
  first.publish();
  EXPECT_EQ(inspect_features(tmp / "f").rows, 10u);
}

TEST(FeatureDir, ASecondWriterIsToldWhoOwnsIt) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  FeatureWriter writer(tmp / "f", contract, 0, "sf-capture features");
  std::string message;
  EXPECT_EQ(code_of([&] { FeatureWriter other(tmp / "f", contract, 0, "x"); }, &message), Exit::kCantCreate);
  EXPECT_NE(message.find("sf-capture features"), std::string::npos) << message;
}

TEST(FeatureDir, AnotherContractCannotContinueIt) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  { FeatureWriter writer(tmp / "f", contract, 0, "test"); }
  contract.layers[0] = "3";
  std::string message;
  EXPECT_EQ(code_of([&] { FeatureWriter writer(tmp / "f", contract, 0, "test"); }, &message), Exit::kProtocol);
  EXPECT_NE(message.find("layers: wanted [\"3\""), std::string::npos) << message;
}

TEST(FeatureDir, AReaderThatWantsAnotherContractIsRefusedNamingTheField) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  publish_all(tmp / "f", contract);
  Contract wanted;
  wanted.mask_rule = "reference";
  std::string message;
  EXPECT_EQ(code_of([&] { DirSource::open(tmp / "f", wanted); }, &message), Exit::kProtocol);
  EXPECT_NE(message.find("mask_rule: wanted \"reference\", found \"turn\""), std::string::npos) << message;
}

TEST(FeatureDir, EachFieldOfAContractThatDiffersIsRefusedNamingBothValues) {
  TemporaryDir tmp;
  const Contract contract = test_contract();
  publish_all(tmp / "f", contract);
  const Json promised = contract.to_json();
  for (const auto& [key, value] : promised.as_object()) {
    Json changed = promised;
    changed.set(key, value.is_int() ? Json(value.as_int() + 1) : value.is_array() ? Json(Json::Array{"9"}) : Json("x"));
    const Contract other = Contract::from_json(changed);
    const std::string both =
        fmt::format("{}: wanted {}, found {}", key, changed.at(key).dump(), promised.at(key).dump());
    std::string message;
    if (key != "order_seed") {  // a reader takes the order that is there
      EXPECT_EQ(code_of([&] { DirSource::open(tmp / "f", other); }, &message), Exit::kProtocol) << key;
      EXPECT_NE(message.find(both), std::string::npos) << message << "\n" << both;
    }
    fs::create_directory(tmp / "g.partial");
    fs::copy_file(tmp / "f/contract.json", tmp / "g.partial/contract.json", fs::copy_options::overwrite_existing);
    EXPECT_EQ(code_of([&] { FeatureWriter writer(tmp / "g", other, 0, "test"); }, &message), Exit::kProtocol) << key;
    EXPECT_NE(message.find(both), std::string::npos) << message << "\n" << both;
  }
}

TEST(FeatureDir, TwoWritersOfOneRunPublishOneDirectory) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  FeatureWriter first(tmp / "f", contract, 0, "test"), second(tmp / "f", contract, 1, "test");
  fill(first, contract, 0, 7);
  fill(second, contract, 5, 10);  // rows 5 and 6 twice
  second.close();
  first.publish();
  EXPECT_EQ(inspect_features(tmp / "f").rows, 10u);
}

TEST(FeatureDir, ARowThatIsNotThereIsNamed) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  FeatureWriter writer(tmp / "f", contract, 0, "test");
  fill(writer, contract, 0, 3);
  writer.publish();
  auto source = DirSource::open(tmp / "f", contract);
  source->want(std::vector<uint64_t>{0, 1, 9});
  std::string message;
  EXPECT_EQ(code_of([&] { source->get(9, soon()); }, &message), Exit::kData);
  EXPECT_NE(message.find("3 of 10 rows are there"), std::string::npos) << message;
}

TEST(FeatureDir, ADamagedByteAnywhereIsFound) {
  TemporaryDir tmp;
  Contract contract = test_contract(3);
  publish_all(tmp / "f", contract);
  Rng rng(5, "flip");
  for (std::string name : {"rows-0-00000.frames", "index.bin"}) {
    fs::path file = tmp / fmt::format("f/{}", name);
    uint64_t size = fs::file_size(file);
    for (uint64_t i = 0; i < 60; ++i) {
      uint64_t at = i < 8 ? i : rng.below(size, i);
      flip(file, at);
      EXPECT_NE(code_of([&] { inspect_features(tmp / "f"); }), Exit::kOk) << name << " byte " << at;
      flip(file, at);
    }
  }
  EXPECT_EQ(inspect_features(tmp / "f").rows, 3u);
}

// Whoever writes an index can hash it, too: entries of any numbers, behind a right hash.
TEST(FeatureDir, AnIndexThatLiesGivesItsOwnRowsOrIsRefusedNeverACrash) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  publish_all(tmp / "f", contract);
  const fs::path file = tmp / "f/index.bin", promises = tmp / "f/contract.json";
  const std::string whole = read_file(file), promised = read_file(promises);
  auto write = [](const fs::path& path, const std::string& bytes) {
    UniqueFd fd = create_file(path);
    write_all(fd.get(), bytes, path);
  };
  const std::vector<uint64_t> numbers = {0,         1,         7, 10, 40, 63, 1 << 16, UINT32_MAX, uint64_t{1} << 40,
                                         INT64_MAX, UINT64_MAX};
  Rng rng(15, "test.index");
  const uint64_t rounds = std::getenv("SF_SOAK") ? 20'000 : 300;
  uint64_t refused = 0, read = 0;
  for (uint64_t i = 0; i < rounds; ++i) {
    std::string bytes = whole, json = promised;
    for (uint64_t k = 0; k <= i % 2; ++k) {  // from the second header word on: count, then 8 bytes of an entry
      const size_t at = 16 + 4 * rng.below((bytes.size() - 24) / 4, i, 3 * k);
      const uint64_t value = numbers[rng.below(numbers.size(), i, 3 * k + 1)];
      std::memcpy(bytes.data() + at, &value, i % 3 ? 4 : 8);
    }
    const uint64_t hash = xxh3_64(std::as_bytes(std::span(bytes)).subspan(32));
    std::memcpy(bytes.data() + 24, &hash, 8);
    if (i % 4 == 0) json[rng.below(json.size(), i, 9)] = static_cast<char>(rng.below(256, i, 10));
    write(file, bytes);
    write(promises, json);
    std::string message;
    const Exit code = code_of(
        [&] {
          auto source = DirSource::open(tmp / "f", Contract{});
          for (uint64_t p = 0; p < 10; ++p) {
            Sample sample = source->get(p, soon());
            EXPECT_EQ(digest_of(sample), digest_of(test_sample(contract, p)));
            ++read;
          }
        },
        &message);
    ASSERT_TRUE(code == Exit::kOk || code == Exit::kData || code == Exit::kProtocol || code == Exit::kNoInput)
        << message;
    refused += code != Exit::kOk;
  }
  EXPECT_GT(refused, rounds / 4);
  EXPECT_GT(read, rounds);
}

TEST(FeatureDir, ATruncatedShardIsBadDataNamingTheFile) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  publish_all(tmp / "f", contract);
  fs::resize_file(first_shard(tmp / "f"), fs::file_size(first_shard(tmp / "f")) - 1);
  std::string message;
  EXPECT_EQ(code_of([&] { inspect_features(tmp / "f"); }, &message), Exit::kData);
  EXPECT_NE(message.find("rows-0-00000.frames"), std::string::npos) << message;
}

TEST(FeatureDir, InspectionGivesOneLineASample) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  publish_all(tmp / "f", contract);
  std::vector<std::string> lines;
  FeatureCounts counts = inspect_features(tmp / "f", [&](const Sample& sample) { lines.push_back(describe(sample)); });
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(counts.voids, 1u);
  EXPECT_NE(lines[4].find(" row 4  void: no supervised token"), std::string::npos) << lines[4];
  EXPECT_NE(lines[1].find("input_ids I32 [6] "), std::string::npos) << lines[1];
}

TEST(FeatureDir, ATeeKeepsWhatWasStreamedAndReplaysItBitEqual) {
  TemporaryDir tmp;
  Contract contract = test_contract();
  std::vector<uint64_t> streamed;
  ProducerThread producer(quick_producer(contract), [&](uint64_t p) { return test_sample(contract, p); });
  TeeSource tee(StreamSource::connect(producer.handle(), quick_trainer()),
                FeatureWriter(tmp / "t", contract, 0, "test"));
  for (uint64_t p = 0; p < 20; ++p) streamed.push_back(digest_of(tee.get(p, soon())));
  tee.finish();
  tee.writer().publish();
  auto replay = DirSource::open(tmp / "t", contract);
  for (uint64_t p = 0; p < 20; ++p) EXPECT_EQ(digest_of(replay->get(p, soon())), streamed[p]) << p;
}

}  // namespace
}  // namespace sf::stream
