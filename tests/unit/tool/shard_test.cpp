// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "ckpt/buffers.h"
#include "fixture.h"
#include "tool/init_model.h"
#include "tool/shard_inspect.h"
#include "tool/shard_verify.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

std::string problems(const fs::path& dir) {
  std::string all;
  for (const std::string& line : verify(dir)) all += line + "\n";
  return all;
}

fs::path published(const Scratch& scratch) {
  InitModelOptions o;
  o.source = tiny_model(scratch);
  o.out = scratch / "out";
  return init_model(o);
}

// Publishes the tiny model's tensors, changed, with a manifest that agrees with the bytes.
fs::path published(const Scratch& scratch, const std::function<void(Named&, ckpt::Manifest&)>& change) {
  Json config = tiny_config();
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)));
  ckpt::Manifest manifest;
  manifest.aliases = {{"lm_head.weight", "model.embed_tokens.weight"}};
  manifest.buffers = ckpt::buffer_records(arch::describe(arch::decoder_from_config(config)));
  change(tensors, manifest);
  std::vector<std::pair<std::string, TensorView>> views;
  for (const auto& [name, tensor] : tensors) views.emplace_back(name, tensor.view());
  return ckpt::Publisher(scratch / "out").commit(views, config, manifest);
}

TEST(Verify, AWholeCheckpointHasNoProblem) {
  Scratch scratch;
  EXPECT_EQ(problems(published(scratch)), "");
}

TEST(Verify, APlainDirectoryLacksAManifest) {
  Scratch scratch;
  EXPECT_TRUE(says(problems(tiny_model(scratch)), "manifest.json is missing"));
}

TEST(Verify, NamesATensorWhoseBytesChanged) {
  Scratch scratch;
  fs::path file = published(scratch) / "model.safetensors";
  std::string bytes = read_file(file);
  bytes[bytes.size() - 1] = static_cast<char>(bytes.back() ^ 64);
  write_atomic(file, bytes);
  EXPECT_TRUE(says(problems(scratch / "out"), "model.norm.weight: bytes differ"));
}

TEST(Verify, NamesAFileThatChanged) {
  Scratch scratch;
  write_atomic(published(scratch) / "tokenizer.json", "{}");
  EXPECT_TRUE(says(problems(scratch / "out"), "tokenizer.json: bytes differ"));
}

TEST(Verify, NamesAFileThatNobodyPublished) {
  Scratch scratch;
  write_atomic(published(scratch) / "extra.txt", "x");
  EXPECT_EQ(problems(scratch / "out"), "extra.txt: is there, but was not published\n");
}

TEST(Verify, NamesAMomentFileThatChangedOrIsGone) {
  Scratch scratch;
  Json config = tiny_config();
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)));
  ckpt::Manifest manifest;
  manifest.kind = "train";
  manifest.aliases = {{"lm_head.weight", "model.embed_tokens.weight"}};
  manifest.buffers = ckpt::buffer_records(arch::describe(arch::decoder_from_config(config)));
  std::vector<std::pair<std::string, TensorView>> views;
  for (const auto& [name, tensor] : tensors) views.emplace_back(name, tensor.view());
  ckpt::Publisher publisher(scratch / "out");
  ckpt::write_safetensors(publisher.dir() / "optimizer.safetensors", {{"a.exp_avg", tensors[0].second.view()}});
  fs::path file = publisher.commit(views, config, manifest) / "optimizer.safetensors";
  EXPECT_EQ(problems(scratch / "out"), "");
  std::string bytes = read_file(file);
  bytes.back() ^= 1;
  write_atomic(file, bytes);
  EXPECT_TRUE(says(problems(scratch / "out"), "optimizer.safetensors: bytes differ"));
  fs::remove(file);
  EXPECT_TRUE(
      says(problems(scratch / "out"), "optimizer.safetensors: bytes differ from the manifest's digest, or one"));
}

TEST(Verify, NamesMissingAndUnexpectedTensors) {
  Scratch scratch;
  fs::path dir = published(scratch, [](Named& tensors, ckpt::Manifest&) { tensors.back().first = "model.odd.weight"; });
  EXPECT_TRUE(says(problems(dir), "model.norm.weight: missing"));
  EXPECT_TRUE(says(problems(dir), "model.odd.weight: has no place in the llama family"));
}

TEST(Verify, NamesMisshapenTensors) {
  Scratch scratch;
  fs::path dir =
      published(scratch, [](Named& tensors, ckpt::Manifest&) { tensors.back().second = HostTensor(Dtype::kF32, {4}); });
  EXPECT_TRUE(says(problems(dir), "model.norm.weight is [4], wanted [32]"));
}

TEST(Verify, NamesAnAliasThatIsNotRecorded) {
  Scratch scratch;
  fs::path dir = published(scratch, [](Named&, ckpt::Manifest& manifest) { manifest.aliases.clear(); });
  EXPECT_TRUE(says(problems(dir), "lm_head.weight: config.json ties it"));
}

TEST(Verify, NamesAnAliasThatConfigDoesNotKnow) {
  Scratch scratch;
  fs::path dir = published(scratch, [](Named&, ckpt::Manifest& manifest) {
    manifest.aliases.push_back({"model.other.weight", "model.norm.weight"});
  });
  EXPECT_TRUE(says(problems(dir), "model.other.weight: recorded as an alias"));
}

TEST(Verify, NamesARotaryTableThatIsStoredOrNotListed) {
  Scratch stored, unlisted;
  auto store = [](Named& tensors, ckpt::Manifest&) { tensors.emplace_back("rotary", HostTensor(Dtype::kF32, {4})); };
  EXPECT_TRUE(says(problems(published(stored, store)), "rotary: stored"));
  auto forget = [](Named&, ckpt::Manifest& manifest) { manifest.buffers.clear(); };
  EXPECT_TRUE(says(problems(published(unlisted, forget)), "rotary: the manifest does not list it"));
}

TEST(Verify, NamesABufferThatComesBackOtherwiseThanItWasPublished) {
  const std::pair<ckpt::BufferRecord, const char*> wrong[] = {
      {{Dtype::kBF16, {4}, false, ""}, "rotary: the manifest lists it as BF16, wanted F32"},
      {{Dtype::kF32, {4}, true, ""}, "rotary: the manifest lists it as stored"},
      {{Dtype::kF32, {4}, false, "0123456789abcdef"}, "was published with 0123456789abcdef"}};
  for (const auto& [record, words] : wrong) {
    Scratch scratch;
    fs::path dir = published(scratch, [&](Named&, ckpt::Manifest& manifest) { manifest.buffers["rotary"] = record; });
    EXPECT_TRUE(says(problems(dir), words));
  }
  Scratch scratch;
  fs::path dir = published(scratch, [](Named&, ckpt::Manifest& manifest) { manifest.buffers["odd"] = {}; });
  EXPECT_TRUE(says(problems(dir), "odd: listed as a buffer"));
}

TEST(Verify, OptimizerStateBelongsToATrainersCheckpointOnly) {
  Scratch scratch, other;
  auto add = [](std::string kind) {
    return [kind](Named& tensors, ckpt::Manifest& manifest) {
      manifest.kind = kind;
      tensors.emplace_back("model.norm.weight.exp_avg", HostTensor(Dtype::kF32, {kHidden}));
    };
  };
  EXPECT_EQ(problems(published(scratch, add("train"))), "");
  EXPECT_TRUE(says(problems(published(other, add("target"))), "exp_avg: has no place"));
}

TEST(Verify, AnUnknownArchitectureIsAProblemByName) {
  Scratch scratch;
  HostTensor w(Dtype::kF32, {1});
  Json config = Json::object().set("model_type", "mamba");
  fs::path dir = ckpt::Publisher(scratch / "out").commit({{"w", w.view()}}, config, ckpt::Manifest());
  EXPECT_TRUE(says(problems(dir), "mamba"));
}

TEST(Verify, ADirectoryThatCannotBeOpenedIsOneProblem) {
  const std::pair<const char*, const char*> damages[] = {
      {"manifest.json", "{"}, {"manifest.json", "[]"}, {"config.json", "{"}, {"model.safetensors", "short"}};
  for (auto [file, bytes] : damages) {
    Scratch scratch;
    write_atomic(published(scratch) / file, bytes);
    EXPECT_TRUE(says(problems(scratch / "out"), file)) << bytes;
  }
  for (const char* file : {"config.json", "model.safetensors"}) {
    Scratch scratch;
    std::filesystem::remove(published(scratch) / file);
    EXPECT_TRUE(says(problems(scratch / "out"), file));
  }
}

TEST(Verify, ADirectoryThatIsNotThereIsMissingInput) {
  Scratch scratch;
  refusal(Exit::kNoInput, [&] { verify(scratch / "none"); });
}

TEST(Inspect, ShowsCountsAliasesAndTensors) {
  Scratch scratch;
  Inspection seen = inspect(published(scratch));
  EXPECT_EQ(seen.json.at("tensor_count").as_int(), 2 + 9 * kLayers);
  EXPECT_EQ(seen.json.at("aliases").at("lm_head.weight").as_string(), "model.embed_tokens.weight");
  EXPECT_TRUE(says(seen.table, "alias         lm_head.weight = model.embed_tokens.weight"));
  EXPECT_TRUE(says(seen.table, "model.layers.3.mlp.down_proj.weight"));
  EXPECT_TRUE(says(seen.table, "[32, 48]"));
}

TEST(Inspect, NamesDigestsAsPublishedOrOfTheBytes) {
  Scratch scratch;
  fs::path dir = published(scratch);
  Json seen = inspect(dir).json.at("tensors").at("model.norm.weight");
  std::string digest = ckpt::Checkpoint::open(dir).manifest().digests.at("model.norm.weight");
  EXPECT_EQ(seen.at("digest").as_string(), digest);
  EXPECT_FALSE(inspect(scratch / "hf").json.at("tensors").at("model.norm.weight").contains("digest"));
  for (const fs::path& path : {scratch / "hf", dir / "model.safetensors"}) {
    Inspection read = inspect(path, true);
    EXPECT_EQ(read.json.at("tensors").at("model.norm.weight").at("digest").as_string(), digest);
    EXPECT_TRUE(says(read.table, digest));
  }
}

TEST(Inspect, ShowsAGgufFileInItsOwnNamesAndTypes) {
  Scratch scratch;
  GgufBuilder builder = gguf_keys();
  write_atomic(scratch / "m.gguf", add_layers(builder).bytes());
  Inspection seen = inspect(scratch / "m.gguf");
  EXPECT_EQ(seen.json.at("what").as_string(), "gguf");
  EXPECT_EQ(seen.json.at("tensors").at("token_embd.weight").at("dtype").as_string(), "Q8_0");
  EXPECT_TRUE(says(seen.table, "general.architecture = llama"));
}

TEST(Inspect, SaysThatAPlainDirectoryHasNoManifest) {
  Scratch scratch;
  EXPECT_TRUE(says(inspect(tiny_model(scratch)).table, "Hugging Face directory, without manifest"));
}

}  // namespace
}  // namespace sf::tool
