// SPDX-License-Identifier: Apache-2.0
// tests/golden/verl_shards: state dictionaries of FSDP2 of torch 2.11.0 as verl saves them. world_3: three ranks, one
// parameter left out of sharding (a plain tensor in every file); mesh_2x2: two replicas of two parts.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "fixture.h"
#include "tool/import_model.h"
#include "tool/reshard.h"
#include "tool/shard_verify.h"
#include "tool/tensor_set.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

fs::path golden(const char* name) {
  const char* root = std::getenv("SF_GOLDEN_ROOT");
  return fs::path(root ? root : "tests/golden") / "verl_shards" / name;
}

// A run's directory with the tokenizer that verl puts beside config.json.
fs::path run_of(const Scratch& scratch, const char* name) {
  fs::path run = scratch / "global_step_7", words = run / "actor" / "huggingface";
  fs::copy(golden(name), run, fs::copy_options::recursive);
  write_atomic(words / "tokenizer.json", text::tokenizer_json(tiny_tokenizer()).dump());
  write_atomic(words / "tokenizer_config.json", text::tokenizer_config_json(tiny_tokenizer()).dump());
  return run;
}

fs::path shard(const fs::path& run, int world, int rank) {
  return run / "actor" / fmt::format("model_world_size_{}_rank_{}.pt", world, rank);
}

void put(const fs::path& file, std::string_view from, std::string_view to) {
  std::string bytes = read_file(file);
  ASSERT_EQ(from.size(), to.size());
  ASSERT_NE(bytes.find(from), std::string::npos) << from;
  for (size_t at = bytes.find(from); at != std::string::npos; at = bytes.find(from, at + 1))
    bytes.replace(at, from.size(), to);
  fs::remove(file);
  write_atomic(file, ckpt::without_crcs(bytes));
}

std::string import_refused(const Scratch& scratch, const fs::path& run) {
  std::string why = refusal(Exit::kData, [&] {
    import_model({.source = run, .out = scratch / "refused", .target = "", .draft_config = ""});
  });
  EXPECT_FALSE(fs::exists(scratch / "refused"));
  return why;
}

// Number of tensors of the published one, all as they were before they were cut.
void expect_whole(const fs::path& published, const fs::path& whole) {
  EXPECT_EQ(verify(published), std::vector<std::string>{});
  TensorSet made = open_tensors(published), wanted = open_tensors(whole);
  ASSERT_EQ(made.tensors.size(), wanted.tensors.size());
  for (const StoredTensor& tensor : wanted.tensors) {
    ASSERT_TRUE(made.stored(tensor.name)) << tensor.name;
    EXPECT_EQ(made.stored(tensor.name)->shape, tensor.shape) << tensor.name;
    EXPECT_EQ(digest_of(*made.stored(tensor.name)), digest_of(tensor)) << tensor.name;
  }
  EXPECT_EQ(made.aliases.at("lm_head.weight"), "model.embed_tokens.weight");
}

TEST(VerlShards, ThreeRanksBecomeOneModelBitForBit) {
  Scratch scratch;
  fs::path run = run_of(scratch, "world_3");
  expect_whole(import_model({.source = run, .out = scratch / "out"}), run / "whole.safetensors");
}

TEST(VerlShards, ReplicasOfPartsAreOneModelToo) {
  Scratch scratch;
  fs::path run = run_of(scratch, "mesh_2x2");
  expect_whole(import_model({.source = run / "actor", .out = scratch / "out"}), run / "whole.safetensors");
}

TEST(VerlShards, ReshardCutsThemIntoFilesOfAnySize) {
  Scratch scratch;
  fs::path run = run_of(scratch, "world_3");
  fs::path out = reshard({.checkpoint = run, .out = scratch / "out", .shard_bytes = 2048});
  expect_whole(out, run / "whole.safetensors");
  EXPECT_GT(ckpt::Checkpoint::open(out).files().size(), 3U);
}

TEST(VerlShards, NamesTheRanksWhoseFilesAreMissing) {
  Scratch scratch;
  fs::path run = run_of(scratch, "mesh_2x2");
  fs::remove(shard(run, 4, 1));
  fs::remove(shard(run, 4, 3));
  EXPECT_TRUE(says(import_refused(scratch, run), "of 4 ranks the files of 2 are missing: 1, 3"));
}

TEST(VerlShards, ReplicasThatDifferAreRefusedByName) {
  Scratch scratch;
  fs::path run = run_of(scratch, "world_3");
  std::string bytes = read_file(shard(run, 3, 2)), plain = read_file(run / "whole.safetensors");
  TensorSet whole = open_tensors(run / "whole.safetensors");
  std::string values(whole.stored("model.norm.weight")->bytes, '\0');
  whole.stored("model.norm.weight")->read(0, std::as_writable_bytes(std::span(values.data(), values.size())));
  std::string other = values;
  other[5] ^= 1;
  put(shard(run, 3, 2), values, other);
  EXPECT_TRUE(says(import_refused(scratch, run), "model.norm.weight: ranks 0 and 2 hold the same part"));
}

TEST(VerlShards, ATensorThatARankLacksAndOneOfAnotherWorldAreNamedAtOnce) {
  Scratch scratch;
  fs::path run = run_of(scratch, "world_3");
  put(shard(run, 3, 1), "layers.0.mlp.up_proj.weight", "layers.0.mlp.UP_proj.weight");
  std::string why = import_refused(scratch, run);
  EXPECT_TRUE(says(why, "2 tensors do not fit together"));
  EXPECT_TRUE(says(why, "model.layers.0.mlp.up_proj.weight: 2 of 3 ranks have it"));
  EXPECT_TRUE(says(why, "model.layers.0.mlp.UP_proj.weight: 1 of 3 ranks have it"));
}

TEST(VerlShards, APartOfAnotherRankIsOfTheWrongShape) {
  Scratch scratch;
  fs::path run = run_of(scratch, "world_3");
  std::string last = read_file(shard(run, 3, 2));
  fs::remove(shard(run, 3, 1));
  write_atomic(shard(run, 3, 1), last);
  EXPECT_TRUE(says(import_refused(scratch, run), "model.embed_tokens.weight: rank 1 has BF16 [85, 16] of it, wanted"));
}

TEST(VerlShards, FilesOfTwoWorldsNeedTheConfigurationThatSaysWhichCounts) {
  Scratch scratch;
  fs::path run = run_of(scratch, "world_3");
  fs::copy_file(shard(run, 3, 0), shard(run, 5, 0));
  expect_whole(import_model({.source = run, .out = scratch / "out"}), run / "whole.safetensors");
  fs::remove(run / "actor" / "fsdp_config.json");
  EXPECT_TRUE(says(import_refused(scratch, run), "files of 3 ranks and of 5"));
}

TEST(VerlShards, AnAdapterIsReadFromItsOwnFiles) {
  Scratch scratch;
  fs::path run = run_of(scratch, "world_3");
  for (int rank = 0; rank < 3; ++rank) put(shard(run, 3, rank), "mlp.up_proj.weight", "mlp.lora_A.weight_");
  EXPECT_TRUE(says(import_refused(scratch, run), "lora_adapter with --target"));
}

TEST(VerlShards, SurviveAThousandRandomMutations) {
  Scratch scratch;
  fs::path run = run_of(scratch, "world_3");
  const std::string good = ckpt::without_crcs(read_file(shard(run, 3, 1)));
  Rng rng(5, "mutations");
  int refused = 0, read = 0;
  for (uint64_t round = 0; round < 1000; ++round) {
    std::string bad = good;
    for (uint64_t k = 0, edits = 1 + rng.below(3, round, 0); k < edits; ++k) {
      size_t at = rng.below(bad.size(), round, 3 * k + 1);
      if (rng.below(2, round, 3 * k + 2)) at = 100 + at % 5000;  // in the pickle
      bad[at] = static_cast<char>(rng.below(256, round, 3 * k + 3));
    }
    { std::ofstream(shard(run, 3, 1), std::ios::binary) << bad; }
    try {
      TensorSet set = open_tensors(run);
      for (const StoredTensor& tensor : set.tensors) {
        ASSERT_LT(tensor.bytes, good.size());
        digest_of(tensor);
      }
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Exit::kData) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

TEST(VerlShards, ARecordThatIsNoPartOfATensorIsRefused) {
  Scratch scratch;
  fs::path run = run_of(scratch, "world_3");
  put(shard(run, 3, 0), "torch.distributed.tensor._dtensor_spec\nDTensorSpec",
      "torch.distributed.tensor._dtensor_spec\nDTensorSpeC");
  EXPECT_TRUE(says(import_refused(scratch, run), "DTensorSpeC, which is no tensor: it is refused, for it could run"));
}

}  // namespace
}  // namespace sf::tool
