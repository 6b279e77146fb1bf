// SPDX-License-Identifier: Apache-2.0
// Residencies of frozen tables, on a DFlash step: equal bits, exact bytes, refusals by name.
#include "engine/tables.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "dflash_toy.h"
#include "engine/host_file.h"
#include "tensor/memory.h"
#include "toy.h"

namespace sf::engine {
namespace {

using plan::Residency;

using toy::dflash_batch;
using toy::draft;

struct Setting {
  Residency embedding = Residency::kReplicate, head = Residency::kReplicate;
  bool tied = false;
  Dtype compute = Dtype::kF32;
  Mode mode = Mode::kKeep;
  int64_t chunk = 40;  // of 101 rows: cuts every owner's interval somewhere

  EngineOptions options() const {
    EngineOptions options{.schedule = {.compute = compute, .mode = mode}};
    options.schedule.tables[arch::kTargetEmbedding] = embedding;
    if (!tied) options.schedule.tables[arch::kTargetHead] = head;
    return options;
  }
};

// Two windows of seven micro-batches (ranks without one included): sums, gradients, norms, weights.
std::vector<float> train(comm::Group& group, const Setting& setting) {
  tensor::set_threads(1);
  constexpr int64_t kWindow = 7;
  arch::ModelSpec spec = arch::describe_training(draft(), setting.tied);
  Engine engine(group, spec, model::dflash_segments(draft(), setting.tied, {setting.chunk}), setting.options());
  toy::load(engine, spec);
  std::vector<float> record;
  for (uint64_t window = 0; window < 2; ++window) {
    for (int64_t round = 0; round < plan::rounds(kWindow, group.world()); ++round) {
      int64_t k = round * group.world() + group.rank();
      std::optional<model::Tensors> mine;
      if (k < kWindow) mine = dflash_batch(window * kWindow + static_cast<uint64_t>(k), setting.compute);
      engine.round(mine, "loss", {"loss"});
    }
    for (const arch::Parameter& p : spec.parameters)
      if (p.trainable) toy::append(record, engine.gathered_gradient(p.name));
    record.push_back(static_cast<float>(engine.step(1e-2, 0.5, {}).grad_norm));
  }
  for (const arch::Parameter& p : spec.parameters)
    if (p.trainable) toy::append(record, engine.gathered(p.name));
  return record;
}

std::vector<float> on_ranks(int world, const Setting& setting) {
  std::vector<float> record;
  comm::run_threads(world, [&](comm::Group& group) {
    auto mine = train(group, setting);
    if (group.rank() == 0) record = mine;
  });
  return record;
}

TEST(Residencies, AllGiveTheBitsOfWholeTablesOnOneRank) {
  for (Dtype compute : {Dtype::kF32, Dtype::kBF16}) {
    std::vector<float> alone = on_ranks(1, {.compute = compute});
    EXPECT_GT(alone[0] * alone[0] + alone[1] * alone[1], 0.0f);
    for (int world : {2, 3, 4})
      for (auto [embedding, head] :
           {std::pair(Residency::kReplicate, Residency::kReplicate), std::pair(Residency::kShard, Residency::kShard),
            std::pair(Residency::kRows, Residency::kStream), std::pair(Residency::kHost, Residency::kHost)})
        EXPECT_TRUE(toy::same_bits(on_ranks(world, {embedding, head, false, compute}), alone))
            << plan::name_of(embedding) << " " << plan::name_of(head) << " on " << world;
  }
}

TEST(Residencies, TheyAreCountedWithTheChunkOfTheHead) {
  EXPECT_EQ(plan::TableUse{}.chunk, ops::kHeadChunk);
}

TEST(Residencies, RecomputingChangesNothing) {
  std::vector<float> alone = on_ranks(1, {});
  EXPECT_TRUE(
      toy::same_bits(on_ranks(2, {Residency::kRows, Residency::kStream, false, Dtype::kF32, Mode::kRecompute}), alone));
}

TEST(Residencies, ATiedTableIsLookedUpInRowsAndPassesInChunks) {
  std::vector<float> alone = on_ranks(1, {.tied = true});
  for (Residency residency : {Residency::kRowsStream, Residency::kShard, Residency::kHost})
    EXPECT_TRUE(toy::same_bits(on_ranks(3, {residency, residency, true}), alone)) << plan::name_of(residency);
}

TEST(Residencies, ThatDoNotFitATableAreRefusedByName) {
  auto group = comm::make_single();
  struct Wrong {
    Setting setting;
    const char* words;
  };
  for (const Wrong& wrong : {Wrong{{Residency::kStream, Residency::kStream}, "stream does not fit table target_emb"},
                             Wrong{{Residency::kRows, Residency::kRows}, "rows does not fit table target_head"},
                             Wrong{{Residency::kRows, Residency::kRows, true}, "rows+stream"}}) {
    try {
      train(*group, wrong.setting);
      FAIL() << wrong.words;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kConfig);
      EXPECT_NE(error.message().find(wrong.words), std::string::npos) << error.message();
    }
  }
}

// What the allocator counts against what the plan says, on a table alone. One thread of each world runs at a time
// between barriers, so the process-wide counters are one rank's.
TEST(Residencies, BytesAtRestAndAtThePeakAreThePlans) {
  tensor::install_allocator();
  constexpr int64_t kRows = 3000, kWidth = 64, kChunk = 500, kIds = 70;
  constexpr uint64_t kWhole = kRows * kWidth * 4, kShare = kWhole / 2;
  struct Wanted {
    Residency residency;
    uint64_t look_up, head;  // most beyond at rest
  };
  arch::Dflash d = draft();
  d.vocab = kRows, d.hidden = kWidth;
  for (const Wanted& wanted : {Wanted{Residency::kShard, kWhole, kWhole}, Wanted{Residency::kRows, 0, 0},
                               Wanted{Residency::kStream, 0, kChunk * kWidth * 4}}) {
    bool looks = wanted.residency != Residency::kStream, heads = wanted.residency != Residency::kRows;
    comm::run_threads(2, [&](comm::Group& group) {
      arch::ModelSpec spec;
      spec.parameters = {{"table", {kRows, kWidth}, false, ""}};
      spec.tables = {{"table", looks, heads}};
      plan::ScheduleOptions options{.world = 2};
      options.tables["table"] = wanted.residency;
      std::vector<model::Segment> segments;
      if (looks) segments.push_back({"embed", {"table"}, {"ids"}, {"rows"}, {}, model::TableCall{}});
      if (heads)
        segments.push_back({"head",
                            {"table"},
                            {"states", "labels"},
                            {"nll", "top1"},
                            {},
                            model::TableCall{model::TableCall::Kind::kHead, kChunk}});
      std::vector<arch::Segment> described;
      for (const auto& s : segments) described.push_back({s.name, s.parameters, s.reads, s.writes, 0});
      plan::Schedule plan = plan::make_schedule(spec, described, options);
      EXPECT_EQ(plan.memory[0].frozen, kShare);
      Store store(plan, spec, segments, group.rank());
      store.load(0, [](int64_t, int64_t, std::span<float> to) { std::fill(to.begin(), to.end(), 0.5f); });
      auto exchanges = table_exchanges(plan, segments, spec, group, {});
      // Only rank 0 has a micro-batch; rank 1 takes part in the calls, and what it gathers is of the same size.
      model::Tensors inputs{{"ids", at::arange(kIds, at::kLong) * 40},
                            {"states", at::zeros({1, kWidth}, at::kFloat)},
                            {"labels", at::full({1}, 7, at::kLong)}};
      for (const auto& segment : segments) {
        Exchange& exchange = *exchanges.at(segment.name);
        group.barrier({"before", Deadline::after_ms(20'000)});
        uint64_t before = tensor::memory().allocated;
        group.barrier({"mark", Deadline::after_ms(20'000)});
        if (group.rank() == 0) tensor::mark_memory();
        group.barrier({"marked", Deadline::after_ms(20'000)});
        exchange.forward(store, group.rank() == 0 ? &inputs : nullptr, false);
        group.barrier({"after", Deadline::after_ms(20'000)});
        uint64_t most = segment.name == "embed" ? wanted.look_up : wanted.head;
        uint64_t rows = segment.name == "embed" ? kIds * kWidth * 4 : 0;
        if (group.rank() == 0) {
          uint64_t used = tensor::memory().peak - before;
          // Both ranks' buffers; the rows looked up; for a head the logits and the packed chunk of one product.
          uint64_t product = segment.name == "head" ? 3 * kChunk * (kWidth + 1) * 4 : 0;
          bool gathered_before = segments.size() == 2 && segment.name == "head";
          uint64_t least = gathered_before ? 0 : 2 * most + rows;
          EXPECT_GE(used, least) << plan::name_of(wanted.residency) << " " << segment.name;
          EXPECT_LE(used, least + product + 4096) << plan::name_of(wanted.residency) << " " << segment.name;
        }
        group.barrier({"read", Deadline::after_ms(20'000)});
      }
      uint64_t held = tensor::memory().allocated;
      group.barrier({"held", Deadline::after_ms(20'000)});
      for (auto& [name, exchange] : exchanges) exchange->end_window();
      group.barrier({"ended", Deadline::after_ms(20'000)});
      const bool counts = wanted.residency == Residency::kShard && group.rank() == 0;
      EXPECT_TRUE(!counts || held - tensor::memory().allocated == 2 * kWhole);
      group.barrier({"end", Deadline::after_ms(20'000)});
    });
  }
}

TEST(Residencies, RowsMoveOnceAnIdAndOnlyForeignOnes) {
  comm::run_threads(2, [&](comm::Group& group) {
    arch::ModelSpec spec;
    spec.parameters = {{"table", {100, 8}, false, ""}};
    spec.tables = {{"table", true, false}};
    plan::ScheduleOptions options{.world = 2};
    options.tables["table"] = Residency::kRows;
    std::vector<model::Segment> segments{{"embed", {"table"}, {"ids"}, {"rows"}, {}, model::TableCall{}}};
    plan::Schedule plan = plan::make_schedule(spec, {{"embed", {"table"}, {"ids"}, {"rows"}, 0}}, options);
    Store store(plan, spec, segments, group.rank());
    store.load(0, [](int64_t lo, int64_t, std::span<float> to) {
      for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(lo) + static_cast<float>(i);
    });
    auto exchange = table_exchanges(plan, segments, spec, group, {}).at("embed");
    model::Tensors inputs{{"ids", at::tensor({70l, 3l, 70l, 99l, 49l}, at::kLong)}};
    uint64_t before = group.traffic().bytes_received;
    model::Tensors out = exchange->forward(store, group.rank() == 0 ? &inputs : nullptr, false);
    uint64_t moved = group.traffic().bytes_received - before;
    // Two foreign ids go out, their rows come back; each call of all_to_all first tells 2 sizes.
    constexpr uint64_t kSizes = 2 * 2 * sizeof(size_t);
    EXPECT_EQ(moved, kSizes + (group.rank() == 0 ? 2 * 8 * 4 : 2 * 4));
    if (group.rank() != 0) return;
    at::Tensor rows = out.at("rows");
    int64_t at = 0;
    for (int64_t id : {70, 3, 70, 99, 49}) EXPECT_EQ(rows[at++][5].item<float>(), static_cast<float>(id * 8 + 5));
  });
}

TEST(HostFile, IsOneCopyThatNobodyCanWriteOnceItIsSealed) {
  std::filesystem::path dir = std::filesystem::temp_directory_path();
  comm::run_threads(3, [&](comm::Group& group) {
    comm::Call call{"test", Deadline::after_ms(20'000)};
    HostFile file(group, 3 * 4096, dir, call);
    EXPECT_EQ(file.mates(), 3);
    EXPECT_EQ(file.place(), group.rank());
    std::memset(file.bytes().data() + 4096 * file.place(), 'a' + file.place(), 4096);
    file.seal(group, call);
    for (int place = 0; place < 3; ++place) EXPECT_EQ(static_cast<char>(file.bytes()[4096 * place]), 'a' + place);
  });
  auto group = comm::make_single();
  EXPECT_DEATH(
      {
        HostFile file(*group, 4096, dir, {"test", Deadline::after_ms(20'000)});
        file.seal(*group, {"test", Deadline::after_ms(20'000)});
        *const_cast<volatile std::byte*>(file.bytes().data()) = std::byte{1};
      },
      "");
}

TEST(HostFile, ADirectoryThatCannotHoldItIsRefusedOnEveryRank) {
  comm::run_threads(2, [&](comm::Group& group) {
    try {
      HostFile file(group, 4096, "/nonexistent", {"test", Deadline::after_ms(20'000)});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kCantCreate);
      EXPECT_NE(error.message().find("rank 0 could not make a file in /nonexistent"), std::string::npos)
          << error.message();
    }
  });
}

// A file whose table begins in the middle of a page.
struct TableFile {
  static constexpr uint64_t kOffset = 100, kBytes = 3 * 4096 + 17;
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("sf-table-" + std::to_string(static_cast<int>(getpid())));
  std::string bytes;
  TableFile() {
    for (uint64_t i = 0; i < kBytes; ++i) bytes += static_cast<char>(i * 7 % 251);
    write_atomic(path, std::string(kOffset, 'x') + bytes + "y");
  }
  ~TableFile() { std::filesystem::remove(path); }
  HostSource source(bool copied, std::string digest = "") const {
    return {path, kOffset, Dtype::kF32, std::move(digest), copied};
  }
};

TEST(HostFile, OfAFileIsMappedWhereItLiesOrCopiedOnceAHost) {
  TableFile file;
  for (bool copied : {false, true}) {
    comm::run_threads(3, [&](comm::Group& group) {
      HostFile table(group, TableFile::kBytes, file.source(copied, hex64(xxh3_64(file.bytes))),
                     std::filesystem::temp_directory_path(), {"test", Deadline::after_ms(20'000)});
      EXPECT_EQ(table.is_copy(), copied);
      EXPECT_EQ(std::memcmp(table.bytes().data(), file.bytes.data(), TableFile::kBytes), 0);
    });
  }
}

TEST(HostFile, OfAFileIsRefusedWhereItsBytesAreNotThoseThatWerePublished) {
  TableFile file;
  auto refused = [&](uint64_t bytes, const HostSource& source) {
    std::string said;
    comm::run_threads(2, [&](comm::Group& group) {
      try {
        HostFile table(group, bytes, source, std::filesystem::temp_directory_path(),
                       {"test", Deadline::after_ms(20'000)});
        ADD_FAILURE() << "nothing was refused";
      } catch (const Error& error) {
        if (group.rank() == 0) said = error.message();
      }
    });
    return said;
  };
  for (bool copied : {false, true})
    EXPECT_NE(refused(TableFile::kBytes, file.source(copied, "0123456789abcdef")).find("wanted 0123456789abcdef"),
              std::string::npos);
  EXPECT_NE(refused(1 << 20, file.source(false)).find("it is truncated"), std::string::npos);
  HostSource absent = file.source(false);
  absent.file = "/nonexistent";
  EXPECT_NE(refused(1, absent).find("could not open /nonexistent"), std::string::npos);
}

TEST(HostFile, KnowsFileSystemsThatHostsShare) {
  constexpr long kNfs = 0x6969, kExt4 = 0xEF53, kTmpfs = 0x01021994, kOverlay = 0x794C7630;
  EXPECT_TRUE(is_network_file_system(kNfs));
  for (long kind : {kExt4, kTmpfs, kOverlay}) EXPECT_FALSE(is_network_file_system(kind));
}

TEST(HostFile, MoreThanIsFreeIsRefusedBeforeAnyOfItIsWritten) {
  auto group = comm::make_single();
  try {
    HostFile file(*group, uint64_t{1} << 55, std::filesystem::temp_directory_path(),
                  {"test", Deadline::after_ms(20'000)});
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kIo);
    EXPECT_NE(error.message().find("free)"), std::string::npos) << error.message();
  }
}

// The reference's older selection failed for an embedding inside a wrapped block.
TEST(HostTables, AFrozenParameterAmongThoseOfASegmentIsReadWhereItLies) {
  toy::Course course;
  std::vector<float> alone = toy::train_alone(course);
  course.options.schedule.tables["position.weight"] = Residency::kHost;
  EXPECT_TRUE(toy::same_bits(toy::train_alone(course), alone));
  for (int world : {2, 3}) EXPECT_TRUE(toy::same_bits(toy::train_threads(world, course), alone)) << world;
}

TEST(HostTables, OfAnotherTypeAreRefusedWhereASegmentIsGivenTheWhole) {
  toy::Course course;
  course.options.schedule.tables["position.weight"] = Residency::kHost;
  course.options.schedule.host_types["position.weight"] = Dtype::kBF16;
  try {
    toy::train_alone(course);
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("position.weight lives on the host as BF16"), std::string::npos) << error.message();
  }
}

// A bf16 file under fp32 computing: rows are cast after they are looked up, which is exact.
TEST(HostTables, KeepTheTypeOfTheirFile) {
  TableFile file;
  comm::run_threads(2, [&](comm::Group& group) {
    arch::ModelSpec spec;
    spec.parameters = {{"table", {100, 8}, false, ""}};
    spec.tables = {{"table", true, false}};
    plan::ScheduleOptions options{.world = 2};
    options.tables["table"] = Residency::kHost;
    options.host_types["table"] = Dtype::kBF16;
    std::vector<model::Segment> segments{{"embed", {"table"}, {"ids"}, {"rows"}, {}, model::TableCall{}}};
    plan::Schedule plan = plan::make_schedule(spec, {{"embed", {"table"}, {"ids"}, {"rows"}, 0}}, options);
    EXPECT_EQ(plan.memory[0].host, 100U * 8 * 2);
    HostTables hosts(plan, group, {{{"table", {file.path, TableFile::kOffset, Dtype::kBF16}}}, "/nonexistent", 20});
    Store store(plan, spec, segments, group.rank());
    auto exchange = table_exchanges(plan, segments, spec, group, {20, &hosts}).at("embed");
    model::Tensors inputs{{"ids", at::tensor({3l}, at::kLong)}};
    at::Tensor rows = exchange->forward(store, &inputs, false).at("rows");
    EXPECT_EQ(rows.scalar_type(), at::kFloat);
    uint16_t bits;
    std::memcpy(&bits, file.bytes.data() + 3 * 8 * 2, sizeof bits);
    uint32_t wide = static_cast<uint32_t>(bits) << 16, found;
    std::memcpy(&found, rows.const_data_ptr<float>(), sizeof found);
    EXPECT_EQ(found, wide);
  });
}

}  // namespace
}  // namespace sf::engine
