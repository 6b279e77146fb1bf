// SPDX-License-Identifier: Apache-2.0
// A table on the host, read by four processes: one copy in memory, no name on disk, nothing left behind, and the bits
// of a rank that holds the whole table. That of 1 GiB is long and large: ./dev soak.
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "../unit/engine/toy.h"
#include "model/dflash.h"
#include "ranks.h"

namespace sf {
namespace {

constexpr int64_t kWidth = 512;
constexpr uint64_t kRowKib = kWidth * sizeof(float) / 1024;

arch::Dflash draft(int64_t vocab) {
  arch::Dflash d;
  d.vocab = vocab, d.hidden = kWidth, d.intermediate = 64, d.layers = 1, d.heads = 2, d.kv_heads = 1, d.head_dim = 16;
  d.max_positions = 64, d.block = 4, d.mask_token = 99, d.capture_layers = {2};
  return d;
}

model::Tensors batch(uint64_t number, int64_t vocab) {
  constexpr int64_t kTokens = 12;
  Rng rng(31, "host table");
  at::Tensor ids = at::zeros({1, kTokens}, at::kLong), states = at::zeros({1, kTokens, kWidth}, at::kFloat);
  for (int64_t i = 0; i < kTokens; ++i)
    ids.mutable_data_ptr<int64_t>()[i] =
        static_cast<int64_t>(rng.below(static_cast<uint64_t>(vocab), number, static_cast<uint64_t>(i)));
  for (int64_t i = 0; i < states.numel(); ++i)
    states.mutable_data_ptr<float>()[i] = rng.normal(number, 1000 + static_cast<uint64_t>(i));
  return {{"input_ids", ids},
          {"loss_mask", at::full({1, kTokens}, 1, at::kLong)},
          {"lengths", at::full({1}, kTokens, at::kLong)},
          {"anchors", at::tensor({1l, 6l}, at::kLong).view({1, 2})},
          {"hidden_states", states},
          {"slot_weights", at::tensor({0.0f, 0.2f, 0.15f, 0.1f})}};
}

void fill(const arch::Parameter& parameter, int64_t lo, int64_t hi, std::span<float> to) {
  float base = parameter.shape.size() == 1 ? 1.0f : 0.0f;
  uint64_t salt = parameter.name.size();
  for (int64_t i = lo; i < hi; ++i) {
    uint64_t mixed = (static_cast<uint64_t>(i) + salt) * 0x9E3779B97F4A7C15u;
    to[static_cast<size_t>(i - lo)] = base + 1e-10f * static_cast<float>(static_cast<int32_t>(mixed >> 32));
  }
}

// The table's values in a file of their own, behind a few other bytes; its name is in a directory that is removed.
engine::HostSource file_of(const std::filesystem::path& dir, int64_t vocab) {
  constexpr uint64_t kOffset = 72;
  arch::ModelSpec spec = arch::describe_training(draft(vocab), true);
  const arch::Parameter& table = *spec.find(arch::kTargetEmbedding);
  std::filesystem::path path = dir / "table.bin";
  UniqueFd fd = create_file(path);
  write_all(fd.get(), std::string(kOffset, 'x'), path);
  std::vector<float> rows(static_cast<size_t>(kWidth) * 1024);
  for (int64_t at = 0; at < vocab * kWidth; at += std::ssize(rows)) {
    fill(table, at, at + std::ssize(rows), rows);
    write_all(fd.get(), std::as_bytes(std::span(rows)), path);
  }
  return {path, kOffset, Dtype::kF32, "", false};
}

// The mapping of the table in this process: its inode, its proportional size in KiB, and whether it has a name.
struct Mapping {
  uint64_t inode = 0, pss_kib = 0;
  bool deleted = false, writable = true;
};
Mapping mapping(uint64_t table_kib) {
  std::ifstream maps("/proc/self/smaps");
  Mapping found;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ') && line.find(':') > line.find(' ')) {
      std::istringstream words(line);
      std::string range, mode, offset, device, name;
      uint64_t inode = 0;
      words >> range >> mode >> offset >> device >> inode;
      std::getline(words, name);
      uint64_t bytes = std::stoull(range.substr(range.find('-') + 1), nullptr, 16) - std::stoull(range, nullptr, 16);
      inside = inode != 0 && bytes / 4096 - table_kib / 4 <= 1;  // a page more where it begins within one
      if (inside) found = {inode, 0, name.find("(deleted)") != std::string::npos, mode[1] == 'w'};
    } else if (inside && line.starts_with("Pss:")) {
      found.pss_kib = std::stoull(line.substr(4));
    }
  }
  return found;
}

struct Plan {
  int64_t vocab = 0;
  int world = 1;
  plan::Residency residency = plan::Residency::kReplicate;
  std::filesystem::path dir;
  std::optional<engine::HostSource> source = {};
};

// One rank: two windows of three micro-batches on a tied table; a line about the mapping, then the weights' bytes.
int train(int rank, int fd, int pipe, const Plan& plan) {
  const int world = plan.world;
  auto group = world == 1 ? comm::make_single() : comm::make_shm(fd, rank, world);
  tensor::set_threads(1);
  constexpr int64_t kWindow = 3;
  arch::ModelSpec spec = arch::describe_training(draft(plan.vocab), true);
  engine::EngineOptions options{.host_dir = plan.dir};
  options.schedule.tables[arch::kTargetEmbedding] = plan.residency;
  if (plan.source) options.host_sources[arch::kTargetEmbedding] = *plan.source;
  engine::Engine engine(*group, spec, model::dflash_segments(draft(plan.vocab), true, {8192}), options);
  for (const arch::Parameter& parameter : spec.parameters)
    engine.load(parameter.name, [&](int64_t lo, int64_t hi, std::span<float> to) { fill(parameter, lo, hi, to); });
  std::vector<float> record;
  for (uint64_t window = 0; window < 2; ++window) {
    for (int64_t round = 0; round < plan::rounds(kWindow, world); ++round) {
      int64_t k = round * world + rank;
      std::optional<model::Tensors> mine;
      if (k < kWindow) mine = batch(window * kWindow + static_cast<uint64_t>(k), plan.vocab);
      engine.round(mine, "loss", {"loss"});
    }
    record.push_back(static_cast<float>(engine.step(1e-2, 0.5, {}).grad_norm));
  }
  for (const arch::Parameter& p : spec.parameters)
    if (p.trainable) engine::toy::append(record, engine.gathered(p.name));
  group->barrier(named("all have read it"));
  Mapping table = mapping(static_cast<uint64_t>(plan.vocab) * kRowKib);
  group->barrier(named("all have looked"));
  if (plan.residency == plan::Residency::kHost)
    Ranks::tell(pipe, fmt::format("{} {} {} {}", table.inode, table.pss_kib, table.deleted, table.writable));
  group->barrier(named("all have spoken", 60'000));
  if (rank == 0) write_all(pipe, std::as_bytes(std::span(record)), "pipe");
  return 0;
}

size_t entries(const std::filesystem::path& dir) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir)) ++count;
  return count;
}

// The bits of a rank that holds the whole, against four that read one copy: made in `dir`, or mapped where it lies.
void check(int64_t vocab, bool in_place) {
  constexpr int kRanks = 4;
  const uint64_t table_kib = static_cast<uint64_t>(vocab) * kRowKib;
  std::filesystem::path dir =
      std::filesystem::temp_directory_path() / fmt::format("sf-host-table-{}", static_cast<int>(getpid()));
  std::filesystem::create_directory(dir);
  Plan plan{.vocab = vocab, .dir = dir};
  std::string alone;
  {
    Ranks run(1, [&](int rank, int fd, int pipe) { return train(rank, fd, pipe, plan); });
    alone = run.all();
    ASSERT_EQ(run.status(), 0);
  }
  plan.world = kRanks;
  plan.residency = plan::Residency::kHost;
  if (in_place) plan.source = file_of(dir, vocab);
  const size_t named = in_place ? 1 : 0;
  Ranks run(kRanks, [&](int rank, int fd, int pipe) { return train(rank, fd, pipe, plan); });
  std::set<std::string> inodes;
  uint64_t pss_kib = 0;
  for (int r = 0; r < kRanks; ++r) {
    std::string inode, deleted, writable;
    uint64_t share = 0;
    std::istringstream(run.line()) >> inode >> share >> deleted >> writable;
    inodes.insert(inode);
    pss_kib += share;
    EXPECT_EQ(deleted, in_place ? "false" : "true");
    EXPECT_EQ(writable, "false");
    EXPECT_LT(share, table_kib / 2);  // a copy of its own would count whole
  }
  EXPECT_EQ(entries(dir), named);
  EXPECT_EQ(run.all(), alone);
  EXPECT_EQ(run.status(), 0);
  EXPECT_EQ(inodes.size(), 1U);
  EXPECT_GT(pss_kib, table_kib * 99 / 100);
  EXPECT_LE(pss_kib, table_kib + 4096);
  fmt::print("table {} MiB {}; ranks {}; inodes {}; proportional sizes together {} MiB\n", table_kib / 1024,
             in_place ? "mapped where it lies" : "copied", kRanks, inodes.size(), pss_kib / 1024);
  std::fflush(stdout);  // before the next fork
  EXPECT_EQ(entries(dir), named);
  std::filesystem::remove_all(dir);
}

TEST(HostTable, OfSixteenMebibytesIsOneCopyForFourProcessesAndGivesTheBitsOfAWholeOne) {
  check(int64_t{1} << 13, false);
  check(int64_t{1} << 13, true);
}

TEST(HostTable, OfAGibibyteIsOneCopyForFourProcessesAndGivesTheBitsOfAWholeOne) {
  check(int64_t{1} << 19, false);
  check(int64_t{1} << 19, true);
}

}  // namespace
}  // namespace sf
