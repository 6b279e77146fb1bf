// SPDX-License-Identifier: Apache-2.0
#include "ckpt/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "base/file.h"
#include "ckpt/as_published.h"
#include "scratch.h"

namespace sf::ckpt {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, std::string_view text) {
  write_atomic(path, text);
}

const HostTensor kEmbedding = ramp(Dtype::kF32, {6, 4}, 1), kNorm = ramp(Dtype::kBF16, {4}, 2);

std::vector<std::pair<std::string, TensorView>> tied_tensors() {
  return {{"model.embed_tokens.weight", kEmbedding.view()}, {"model.norm.weight", kNorm.view()}};
}

Json config(bool tied = true) {
  return Json::object().set("model_type", "llama").set("tie_word_embeddings", tied);
}

fs::path published(const Scratch& scratch, uint64_t shard_bytes = 1 << 20) {
  Manifest manifest;
  manifest.kind = "target";
  manifest.aliases = {{"lm_head.weight", "model.embed_tokens.weight"}};
  manifest.buffers["rotary"] = {Dtype::kF32, {4}, false, "00112233aabbccdd"};
  manifest.step = 12;
  manifest.cursor = 48;
  manifest.seed = UINT64_MAX;
  manifest.extra.set("note", "kept");
  Publisher publisher(scratch / "out");
  put(publisher.dir() / "tokenizer.json", "{}");
  return publisher.commit(tied_tensors(), config(), manifest, shard_bytes);
}

// KiB of the mapping that holds `at` which lie in this process.
int64_t resident_kib(const void* at) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2)
      inside = begin <= reinterpret_cast<uintptr_t>(at) && reinterpret_cast<uintptr_t>(at) < end;
    else if (inside && line.starts_with("Rss:"))
      return std::stoll(line.substr(4));
  }
  return -1;
}

TEST(Checkpoint, RowsShorterThanAPageReadOneByOneDoNotStayResident) {
  Scratch scratch;
  HostTensor table = ramp(Dtype::kF32, {16384, 100}, 3);
  Publisher publisher(scratch / "out");
  Manifest manifest;
  manifest.kind = "target";
  Checkpoint files = Checkpoint::open(publisher.commit({{"table", table.view()}}, Json::object(), manifest, 1 << 30));
  std::vector<float> row(100);
  for (int64_t i = 0; i < 16384; i += 2)
    files.read("table", i * 100, (i + 1) * 100, Dtype::kF32, std::as_writable_bytes(std::span(row)));
  EXPECT_LE(resident_kib(files.view("table").span().data()), 256);  // of 6400; what one fault maps around it may stay
}

TEST(Checkpoint, AMissingDirectoryIsMissingInput) {
  Scratch scratch;
  refusal(Exit::kNoInput, [&] { Checkpoint::open(scratch / "none"); });
}

TEST(Checkpoint, ADirectoryWithoutTensorsIsIncomplete) {
  Scratch scratch;
  put(scratch / "config.json", "{}");
  refusal(Exit::kNoInput, [&] { Checkpoint::open(scratch.path()); });
}

TEST(Checkpoint, AMissingConfigIsMissingInput) {
  Scratch scratch;
  write_safetensors(scratch / "model.safetensors", tied_tensors());
  refusal(Exit::kNoInput, [&] { Checkpoint::open(scratch.path()); });
}

TEST(Checkpoint, PickledWeightsAreRefusedWithAdvice) {
  Scratch scratch;
  put(scratch / "config.json", "{}");
  put(scratch / "pytorch_model.bin", "x");
  EXPECT_NE(refusal(Exit::kData, [&] { Checkpoint::open(scratch.path()); }).find("sf-shard import"), std::string::npos);
}

TEST(Checkpoint, ATiedPlainDirectoryFindsTheHeadInTheEmbedding) {
  Scratch scratch;
  write_safetensors(scratch / "model.safetensors", tied_tensors());
  put(scratch / "config.json", config(true).dump());
  Checkpoint open = Checkpoint::open(scratch.path());
  EXPECT_FALSE(open.has_manifest());
  ASSERT_TRUE(open.contains("lm_head.weight"));
  EXPECT_TRUE(same(open.view("lm_head.weight"), kEmbedding.view()));
  EXPECT_EQ(open.names(), (std::vector<std::string>{"model.embed_tokens.weight", "model.norm.weight"}));
}

TEST(Checkpoint, ATiedDirectoryThatStoresOnlyTheHeadFindsTheEmbedding) {
  Scratch scratch;
  write_safetensors(scratch / "model.safetensors", {{"lm_head.weight", kEmbedding.view()}});
  put(scratch / "config.json", config(true).dump());
  EXPECT_TRUE(same(Checkpoint::open(scratch.path()).view("model.embed_tokens.weight"), kEmbedding.view()));
}

TEST(Checkpoint, AnUntiedDirectoryWithoutAHeadDoesNotTieSilently) {
  Scratch scratch;
  write_safetensors(scratch / "model.safetensors", tied_tensors());
  put(scratch / "config.json", config(false).dump());
  Checkpoint open = Checkpoint::open(scratch.path());
  EXPECT_FALSE(open.contains("lm_head.weight"));
  std::string why = refusal(Exit::kData, [&] { open.view("model.embed.weight"); });
  EXPECT_NE(why.find("nearest names are model.embed_tokens.weight"), std::string::npos) << why;
}

TEST(Checkpoint, ReadsAnIntervalConverted) {
  Scratch scratch;
  HostTensor wide(Dtype::kF32, {4});
  for (size_t i = 0; i < 4; ++i) wide.as<float>()[i] = static_cast<float>(i) + 0.5f;
  write_safetensors(scratch / "model.safetensors", {{"w", wide.view()}});
  put(scratch / "config.json", "{}");
  uint16_t out[2];
  Checkpoint::open(scratch.path()).read("w", 1, 3, Dtype::kBF16, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(bf16_to_float(out[0]), 1.5f);
  EXPECT_EQ(bf16_to_float(out[1]), 2.5f);
}

TEST(Checkpoint, AShardedDirectoryReadsThroughItsIndex) {
  Scratch scratch;
  fs::path dir = published(scratch, 50);
  EXPECT_TRUE(fs::exists(dir / "model-00001-of-00002.safetensors"));
  Checkpoint open = Checkpoint::open(dir);
  EXPECT_TRUE(same(open.view("model.norm.weight"), kNorm.view()));
  EXPECT_TRUE(same(open.view("lm_head.weight"), kEmbedding.view()));
  EXPECT_EQ(open.verify(), std::vector<std::string>{});
}

TEST(Checkpoint, AnIndexMayNotLeaveItsDirectory) {
  Scratch scratch;
  put(scratch / "config.json", "{}");
  for (const char* name : {"../x.safetensors", "/etc/passwd", "..", ""}) {
    Json index = Json::object().set("weight_map", Json::object().set("w", name));
    put(scratch / "model.safetensors.index.json", index.dump());
    refusal(Exit::kData, [&] { Checkpoint::open(scratch.path()); });
  }
}

TEST(Checkpoint, AnIndexThatNamesAMissingFileOrTensorIsRefused) {
  Scratch scratch;
  put(scratch / "config.json", "{}");
  put(scratch / "model.safetensors.index.json", R"({"weight_map": {"w": "a.safetensors"}})");
  refusal(Exit::kNoInput, [&] { Checkpoint::open(scratch.path()); });
  write_safetensors(scratch / "a.safetensors", tied_tensors());
  refusal(Exit::kData, [&] { Checkpoint::open(scratch.path()); });
}

TEST(Checkpoint, AllFilesThatAnIndexNamesInVainAreListed) {
  Scratch scratch;
  put(scratch / "config.json", "{}");
  put(scratch / "model.safetensors.index.json",
      R"({"weight_map": {"v": "b.safetensors", "w": "a.safetensors", "x": "b.safetensors"}})");
  std::string why = refusal(Exit::kNoInput, [&] { Checkpoint::open(scratch.path()); });
  EXPECT_NE(why.find("2 of 2 files that the index names are absent: a.safetensors (1 tensors), b.safetensors (2"),
            std::string::npos)
      << why;
}

TEST(Checkpoint, ShardsWithoutAnIndexAreReadInFull) {
  Scratch scratch;
  fs::path dir = published(scratch, 50);
  fs::remove(dir / "model.safetensors.index.json");
  fs::remove(dir / "manifest.json");
  EXPECT_TRUE(same(Checkpoint::open(dir).view("lm_head.weight"), kEmbedding.view()));
  fs::rename(dir / "model-00002-of-00002.safetensors", dir / "kept");
  EXPECT_NE(refusal(Exit::kNoInput, [&] { Checkpoint::open(dir); }).find("1 of 2 shards are absent"),
            std::string::npos);
  fs::copy_file(dir / "model-00001-of-00002.safetensors", dir / "model-00002-of-00002.safetensors");
  EXPECT_NE(refusal(Exit::kData, [&] { Checkpoint::open(dir); }).find("1 tensors lie in two files"), std::string::npos);
}

TEST(Checkpoint, ASingleFileBesideShardsThatHoldItsTensorsIsRefusedNamingBoth) {
  for (const char* shard : {"b.safetensors", "model-00001-of-00001.safetensors"}) {
    Scratch scratch;
    write_safetensors(scratch / "model.safetensors", tied_tensors());
    write_safetensors(scratch / shard, {{"model.norm.weight", kNorm.view()}});
    put(scratch / "config.json", config().dump());
    put(scratch / "model.safetensors.index.json",
        Json::object().set("weight_map", Json::object().set("model.norm.weight", shard)).dump());
    std::string why = refusal(Exit::kData, [&] { Checkpoint::open(scratch.path()); });
    EXPECT_TRUE(says(why, "model.norm.weight in model.safetensors and " + std::string(shard)));
    fs::remove(scratch / shard);  // an index that was left behind says nothing
    EXPECT_EQ(Checkpoint::open(scratch.path()).names().size(), 2u);
  }
}

TEST(Manifest, ReadsBackEveryFieldAndKeepsUnknownKeys) {
  Scratch scratch;
  const Manifest m = Checkpoint::open(published(scratch)).manifest();
  EXPECT_EQ(m.kind, "target");
  ASSERT_EQ(m.aliases.size(), 1u);
  EXPECT_EQ(m.aliases[0].of, "model.embed_tokens.weight");
  EXPECT_EQ(m.buffers.size(), 1U);
  EXPECT_EQ(m.buffers.at("rotary").shape, (Shape{4}));
  EXPECT_EQ(m.buffers.at("rotary").digest, "00112233aabbccdd");
  EXPECT_EQ(m.step, 12);
  EXPECT_EQ(m.cursor, 48);
  EXPECT_EQ(m.seed, UINT64_MAX);
  EXPECT_EQ(m.extra.get_string("note", ""), "kept");
  EXPECT_EQ(m.identity.size(), 64u);
  EXPECT_TRUE(m.digests.contains("tokenizer.json"));
  EXPECT_EQ(manifest_to_json(manifest_from_json(manifest_to_json(m))), manifest_to_json(m));
}

TEST(Manifest, ANewerFormatIsRefused) {
  Scratch scratch;
  Json json = manifest_to_json(Checkpoint::open(published(scratch)).manifest()).set("format", 2);
  refusal(Exit::kProtocol, [&] { manifest_from_json(json); });
}

TEST(Manifest, OneThatDescribesNothingIsNone) {
  std::string text = refusal(Exit::kData, [] { manifest_from_json(Json::object()); });
  EXPECT_NE(text.find("\"format\" is missing"), std::string::npos) << text;
}

TEST(Manifest, AnAliasOfNothingIsRefused) {
  Scratch scratch;
  write_safetensors(scratch / "model.safetensors", tied_tensors());
  put(scratch / "config.json", "{}");
  put(scratch / "manifest.json",
      R"({"format": 1, "kind": "target", "identity": "", "digests": {}, "aliases": {"lm_head.weight": "nowhere"}})");
  refusal(Exit::kData, [&] { Checkpoint::open(scratch.path()); });
}

TEST(Manifest, AnAliasThatIsStoredOrHasAnotherShapeIsRefusedNamingBoth) {
  auto opened = [](const char* aliases, bool tied) {
    Scratch scratch;
    const HostTensor head = ramp(Dtype::kF32, {6, 8}, 3), embedding = ramp(Dtype::kF32, {6, 8}, 4);
    const HostTensor norm = ramp(Dtype::kF32, {8}, 5);
    std::vector<std::pair<std::string, TensorView>> tensors = {{"model.embed_tokens.weight", embedding.view()},
                                                               {"model.norm.weight", norm.view()}};
    if (!tied) tensors.emplace_back("lm_head.weight", head.view());
    write_safetensors(scratch / "model.safetensors", tensors);
    Json config = Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 6,
        "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5})",
                              "here");
    put(scratch / "config.json", config.set("tie_word_embeddings", tied).dump());
    put(scratch / "manifest.json",
        fmt::format(R"({{"format": 1, "kind": "target", "identity": "", "digests": {{}}, "aliases": {}}})", aliases));
    Checkpoint::open(scratch.path());
  };
  opened(R"({"lm_head.weight": "model.embed_tokens.weight"})", true);
  opened("{}", false);
  std::string twice =
      refusal(Exit::kData, [&] { opened(R"({"lm_head.weight": "model.embed_tokens.weight"})", false); });
  EXPECT_TRUE(says(twice, "\"lm_head.weight\" is stored"));
  EXPECT_TRUE(says(twice, "\"model.embed_tokens.weight\""));
  std::string shape = refusal(Exit::kData, [&] { opened(R"({"lm_head.weight": "model.norm.weight"})", true); });
  EXPECT_TRUE(says(shape, "\"lm_head.weight\" as another name of \"model.norm.weight\""));
}

TEST(Verify, FindsAFlippedBitInATensor) {
  Scratch scratch;
  fs::path file = published(scratch) / "model.safetensors";
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put(file, bytes);
  EXPECT_EQ(Checkpoint::open(scratch / "out").verify(), (std::vector<std::string>{"identity", "model.norm.weight"}));
}

TEST(Verify, FindsAChangedShapeThatKeepsTheBytes) {
  Scratch scratch;
  fs::path file = published(scratch) / "model.safetensors";
  std::string bytes = read_file(file);
  bytes.replace(bytes.find("[6,4]"), 5, "[4,6]");
  put(file, bytes);
  EXPECT_EQ(Checkpoint::open(scratch / "out").verify(), std::vector<std::string>{"identity"});
}

TEST(Verify, FindsAChangedOrMissingFile) {
  Scratch scratch;
  fs::path dir = published(scratch);
  put(dir / "config.json", "{}");
  fs::remove(dir / "tokenizer.json");
  EXPECT_EQ(Checkpoint::open(dir).verify(), (std::vector<std::string>{"config.json", "identity", "tokenizer.json"}));
}

TEST(AsPublished, AChangedRemovedOrAddedWordIsNamed) {
  for (auto [name, text] : {std::pair("config.json", "{}"), {"tokenizer.json", "[]"}, {"chat_template.jinja", "x"}}) {
    Scratch scratch;
    fs::path dir = published(scratch);
    EXPECT_EQ(Checkpoint::open(dir).identity().size(), 64u);
    put(dir / name, text);
    std::string found = refusal(Exit::kData, [&] { Checkpoint::open(dir).identity(); });
    EXPECT_NE(found.find(name), std::string::npos) << found;
  }
  Scratch scratch;
  fs::path dir = published(scratch);
  fs::remove(dir / "tokenizer.json");
  refusal(Exit::kData, [&] { check_as_published(Checkpoint::open(dir)); });
}

TEST(AsPublished, AChangedShapeIsAnotherIdentity) {
  Scratch scratch;
  fs::path file = published(scratch) / "model.safetensors";
  std::string bytes = read_file(file);
  bytes.replace(bytes.find("[6,4]"), 5, "[4,6]");
  put(file, bytes);
  refusal(Exit::kData, [&] { check_as_published(Checkpoint::open(scratch / "out")); });
}

TEST(AsPublished, ATensorsBytesAreComparedUnderAnyOfItsNames) {
  Scratch scratch;
  fs::path file = published(scratch) / "model.safetensors";
  check_tensor(Checkpoint::open(scratch / "out"), "lm_head.weight");
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put(file, bytes);
  Checkpoint open = Checkpoint::open(scratch / "out");
  check_tensor(open, "lm_head.weight");
  std::string found = refusal(Exit::kData, [&] { check_tensor(open, "model.norm.weight"); });
  EXPECT_NE(found.find("model.norm.weight"), std::string::npos) << found;
}

TEST(AsPublished, ATensorThatIsReadWholeIsComparedOnTheWay) {
  Scratch scratch;
  fs::path file = published(scratch) / "model.safetensors";
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put(file, bytes);
  Checkpoint open = Checkpoint::open(scratch / "out");
  const std::string name = "model.norm.weight";
  const int64_t count = numel(open.info(name).shape);
  for (Dtype as : {open.info(name).dtype, Dtype::kF32, Dtype::kBF16}) {
    std::vector<std::byte> to(static_cast<size_t>(count) * size_of(as));
    EXPECT_TRUE(says(refusal(Exit::kData, [&] { open.read(name, 0, count, as, to); }), name));
    open.read(name, 0, 1, as, std::span(to).first(size_of(as)));  // a part cannot be
  }
}

TEST(Verify, IdentityOfAPlainDirectoryEqualsThePublishedOne) {
  Scratch scratch;
  fs::path dir = published(scratch);
  std::string wanted = Checkpoint::open(dir).identity();
  fs::remove(dir / "manifest.json");
  EXPECT_EQ(Checkpoint::open(dir).identity(), wanted);
}

// Whoever may do everything is asked in the name of nobody.
TEST(Checkpoint, ADirectoryThatMayNotBeLookedIntoIsNoPermission) {
  Scratch scratch;
  std::filesystem::create_directory(scratch / "closed");
  std::filesystem::permissions(scratch.path(), std::filesystem::perms::all);
  std::filesystem::permissions(scratch / "closed", std::filesystem::perms::none);
  pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(1);
    try {
      Checkpoint::open(scratch / "closed");
    } catch (const Error& error) {
      _exit(static_cast<int>(error.code()));
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(Exit::kNoPermission));
  std::filesystem::permissions(scratch / "closed", std::filesystem::perms::all);
}

}  // namespace
}  // namespace sf::ckpt
