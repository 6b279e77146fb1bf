// SPDX-License-Identifier: Apache-2.0
#include "tool/init_model.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>

#include "fixture.h"
#include "text/chat.h"
#include "tool/shard_verify.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

InitModelOptions options(const fs::path& source, const fs::path& out) {
  InitModelOptions o;
  o.source = source;
  o.out = out;
  return o;
}

fs::path gguf(const Scratch& scratch, const GgufBuilder& builder) {
  write_atomic(scratch / "m.gguf", builder.bytes());
  return scratch / "m.gguf";
}

ckpt::Checkpoint converted(const Scratch& scratch) {
  GgufBuilder builder = gguf_keys();
  return ckpt::Checkpoint::open(init_model(options(gguf(scratch, add_layers(builder)), scratch / "out")));
}

TEST(InitModelGguf, TheCheckpointVerifiesAndCarriesTokenizerAndTemplate) {
  Scratch scratch;
  ckpt::Checkpoint open = converted(scratch);
  EXPECT_EQ(verify(open.dir()), std::vector<std::string>{});
  text::ChatEncoder encoder = text::ChatEncoder::open(open.dir());
  Json messages = Json::parse(R"([{"role": "user", "content": "hi"}])", "t");
  EXPECT_EQ(encoder.render(messages, true), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  Json generation = Json::parse(read_file(open.dir() / "generation_config.json"), "g");
  EXPECT_EQ(generation.at("eos_token_id").as_int(), 258);
}

TEST(InitModelGguf, QueryAndKeyRowsLeaveTheInterleavedOrder) {
  Scratch scratch;
  ckpt::Checkpoint open = converted(scratch);
  for (auto [name, heads] : {std::pair("q_proj", kHeads), std::pair("k_proj", kKvHeads)}) {
    std::vector<float> rows = floats_of(open, fmt::format("model.layers.3.self_attn.{}.weight", name));
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t pair = 0; pair < kHeadDim / 2; ++pair)
        for (int64_t side = 0; side < 2; ++side) {
          int64_t row = head * kHeadDim + side * (kHeadDim / 2) + pair, in_file = head * kHeadDim + 2 * pair + side;
          EXPECT_EQ(rows[static_cast<size_t>(row * kHidden)], static_cast<float>(in_file)) << name << " row " << row;
        }
  }
}

TEST(InitModelGguf, OtherRowsStayInOrder) {
  Scratch scratch;
  ckpt::Checkpoint open = converted(scratch);
  std::vector<float> rows = floats_of(open, "model.layers.0.self_attn.v_proj.weight");
  for (int64_t r = 0; r < kKvHeads * kHeadDim; ++r)
    EXPECT_EQ(rows[static_cast<size_t>(r * kHidden)], static_cast<float>(r) + 0.5f);
}

TEST(InitModelGguf, AMissingHeadIsTiedToTheEmbedding) {
  Scratch scratch;
  ckpt::Checkpoint open = converted(scratch);
  EXPECT_EQ(open.manifest().aliases.at(0).name, "lm_head.weight");
  EXPECT_FALSE(open.manifest().buffers.at("rotary").stored);
  EXPECT_EQ(open.view("lm_head.weight").data, open.view("model.embed_tokens.weight").data);
  EXPECT_EQ(floats_of(open, "lm_head.weight")[7], 2.0f);
  EXPECT_TRUE(open.config().at("tie_word_embeddings").as_bool());
}

TEST(InitModelGguf, AStoredHeadStaysItsOwn) {
  Scratch scratch;
  GgufBuilder builder = gguf_keys();
  add_matrix(add_layers(builder), "output.weight", kVocab, kHidden);
  ckpt::Checkpoint open = ckpt::Checkpoint::open(init_model(options(gguf(scratch, builder), scratch / "out")));
  EXPECT_TRUE(open.aliases().empty());
  EXPECT_EQ(floats_of(open, "lm_head.weight")[static_cast<size_t>(9 * kHidden)], 9.0f);
}

TEST(InitModelGguf, ConfigHoldsTheMetadataAsItsAuthorWroteIt) {
  Scratch scratch;
  arch::Decoder d = arch::decoder_from_config(converted(scratch).config());
  EXPECT_EQ(d.rms_eps, 1e-5);
  EXPECT_EQ(d.rope.theta, 1e5);
  EXPECT_EQ(d.vocab, kVocab);
  EXPECT_EQ(d.kv_heads, kKvHeads);
  EXPECT_EQ(d.eos, std::vector<int64_t>{258});
  EXPECT_EQ(d.stored, Dtype::kF32);
}

TEST(InitModelGguf, StoresBfloatWhenAsked) {
  Scratch scratch;
  GgufBuilder builder = gguf_keys();
  InitModelOptions o = options(gguf(scratch, add_layers(builder)), scratch / "out");
  o.dtype = Dtype::kBF16;
  ckpt::Checkpoint open = ckpt::Checkpoint::open(init_model(o));
  EXPECT_EQ(open.info("model.norm.weight").dtype, Dtype::kBF16);
  EXPECT_EQ(open.config().at("torch_dtype").as_string(), "bfloat16");
  EXPECT_EQ(floats_of(open, "model.norm.weight")[0], 5.0f);
}

TEST(InitModelGguf, EachTensorKeepsItsOwnTypeWhereTheFileMixesThem) {
  Scratch scratch;
  GgufBuilder b = gguf_keys();
  std::string halves;
  for (int64_t i = 0; i < kVocab * kHidden; ++i) halves += GgufBuilder::raw(float_to_half(1.0f));
  b.tensor("output.weight", {kHidden, kVocab}, 1, halves);
  write_atomic(scratch / "m.gguf", add_layers(b).bytes());
  InitModelOptions o = options(scratch / "m.gguf", scratch / "out");
  ckpt::Checkpoint made = ckpt::Checkpoint::open(init_model(o));
  EXPECT_EQ(made.info("lm_head.weight").dtype, Dtype::kF16);
  EXPECT_EQ(made.info("model.norm.weight").dtype, Dtype::kF32);
  EXPECT_EQ(made.info("model.embed_tokens.weight").dtype, Dtype::kF32);  // quantised
  o.out = scratch / "half";
  o.dtype = Dtype::kF16;
  EXPECT_EQ(ckpt::Checkpoint::open(init_model(o)).info("model.norm.weight").dtype, Dtype::kF16);
}

TEST(InitModelGguf, RefusesOtherArchitecturesByName) {
  Scratch scratch;
  GgufBuilder builder = gguf_keys("mamba");
  fs::path file = gguf(scratch, add_layers(builder));
  EXPECT_TRUE(says(refusal(Exit::kConfig, [&] { init_model(options(file, scratch / "out")); }), "mamba"));
}

TEST(InitModelGguf, ATokenizerWithoutMergesIsBroken) {
  Scratch scratch;
  GgufBuilder builder = gguf_keys("llama", false);
  fs::path file = gguf(scratch, add_layers(builder));
  EXPECT_TRUE(says(refusal(Exit::kData, [&] { init_model(options(file, scratch / "out")); }), "tokenizer.ggml.merges"));
}

TEST(InitModelGguf, NamesMissingAndUnexpectedTensors) {
  Scratch scratch;
  GgufBuilder missing = gguf_keys(), more = gguf_keys();
  add_layers(missing, "blk.2.attn_v.weight");
  EXPECT_TRUE(says(refusal(Exit::kData, [&] { init_model(options(gguf(scratch, missing), scratch / "out")); }),
                   "blk.2.attn_v.weight"));
  add_matrix(add_layers(more), "blk.0.attn_q.bias", 1, 32);
  EXPECT_TRUE(says(refusal(Exit::kData, [&] { init_model(options(gguf(scratch, more), scratch / "out")); }),
                   "blk.0.attn_q.bias"));
  EXPECT_FALSE(fs::exists(scratch / "out"));
}

TEST(InitModelGguf, RefusesBakedFrequencyFactors) {
  Scratch scratch;
  GgufBuilder builder = gguf_keys();
  add_matrix(add_layers(builder), "rope_freqs.weight", 1, 4);
  EXPECT_TRUE(says(refusal(Exit::kConfig, [&] { init_model(options(gguf(scratch, builder), scratch / "out")); }),
                   "rope_freqs"));
}

TEST(InitModel, MissingSourcesAndOtherFilesAreRefused) {
  Scratch scratch;
  refusal(Exit::kNoInput, [&] { init_model(options(scratch / "none", scratch / "out")); });
  write_atomic(scratch / "notes.txt", "hello");
  refusal(Exit::kData, [&] { init_model(options(scratch / "notes.txt", scratch / "out")); });
  EXPECT_FALSE(fs::exists(scratch / "out"));
}

TEST(InitModelHf, KeepsEveryBitUnknownKeysAndTheTokenizer) {
  Scratch scratch;
  fs::path hf = tiny_model(scratch, true, Dtype::kBF16);
  ckpt::Checkpoint open = ckpt::Checkpoint::open(init_model(options(hf, scratch / "out"))),
                   source = ckpt::Checkpoint::open(hf);
  EXPECT_EQ(verify(open.dir()), std::vector<std::string>{});
  for (const std::string& name : source.names()) EXPECT_TRUE(ckpt::same(open.view(name), source.view(name))) << name;
  EXPECT_EQ(open.config().at("unknown_to_us").as_string(), "kept");
  EXPECT_EQ(open.config().at("dtype").as_string(), "bfloat16");
  EXPECT_EQ(read_file(open.dir() / "tokenizer.json"), read_file(hf / "tokenizer.json"));
  EXPECT_TRUE(fs::exists(open.dir() / "generation_config.json"));
}

TEST(InitModelHf, ConvertsWhenAsked) {
  Scratch scratch;
  InitModelOptions o = options(tiny_model(scratch), scratch / "out");
  o.dtype = Dtype::kBF16;
  ckpt::Checkpoint open = ckpt::Checkpoint::open(init_model(o)), source = ckpt::Checkpoint::open(o.source);
  float wanted = floats_of(source, "model.norm.weight")[3];
  EXPECT_EQ(floats_of(open, "model.norm.weight")[3], bf16_to_float(float_to_bf16(wanted)));
}

TEST(InitModelHf, OfTwoTiedTensorsThatDifferTheOneAskedForCounts) {
  Scratch scratch;
  Json config = tiny_config(true);
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)));
  tensors.emplace_back("lm_head.weight", HostTensor(Dtype::kF32, {kVocab, kHidden}));
  InitModelOptions o = options(write_model(scratch / "hf", config, tensors), scratch / "out");
  EXPECT_TRUE(says(refusal(Exit::kData, [&] { init_model(o); }), "bytes differ; say which counts with --tied-from"));
  for (const char* winner : {"lm_head.weight", "model.embed_tokens.weight"}) {
    o.tied_from = winner;
    o.out = scratch / winner;
    ckpt::Checkpoint open = ckpt::Checkpoint::open(init_model(o));
    EXPECT_EQ(floats_of(open, "lm_head.weight")[0] == 0, std::string_view(winner) == "lm_head.weight");
    std::vector<std::string> names = open.names();
    EXPECT_EQ(std::count(names.begin(), names.end(), "lm_head.weight"), 0);
  }
}

TEST(InitModelHf, ANameThatIsNotTiedCannotCount) {
  Scratch scratch;
  InitModelOptions o = options(tiny_model(scratch), scratch / "out");
  o.tied_from = "nonsense";
  std::string why = refusal(Exit::kUsage, [&] { init_model(o); });
  EXPECT_TRUE(says(why, "nonsense is no tied tensor of this model; known: model.embed_tokens.weight, lm_head.weight"));
}

TEST(InitModelHf, ATiedHeadStoredWithTheEmbeddingsBytesIsDropped) {
  Scratch scratch;
  Json config = tiny_config(true);
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)));
  tensors.emplace_back("lm_head.weight", tensors[0].second);
  std::vector<std::string> names =
      ckpt::Checkpoint::open(init_model(options(write_model(scratch / "hf", config, tensors), scratch / "out")))
          .names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "lm_head.weight"), 0);
}

TEST(InitModelHf, EverythingThatIsWrongIsSaidAtOnceWithCounts) {
  Scratch scratch;
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(tiny_config())));
  tensors.erase(tensors.begin() + 3, tensors.begin() + 5);
  tensors.back().second = HostTensor(Dtype::kF32, {4});
  for (int i = 0; i < 30; ++i) tensors.emplace_back(fmt::format("odd.{:02}", i), HostTensor(Dtype::kF32, {1}));
  fs::path hf = write_model(scratch / "hf", tiny_config(), tensors);
  std::string why = refusal(Exit::kData, [&] { init_model(options(hf, scratch / "out")); });
  EXPECT_TRUE(says(why, "2 tensors that config.json asks for are missing: "));
  EXPECT_TRUE(says(why, "1 have another shape than config.json's: model.norm.weight is [4], wanted [32]"));
  EXPECT_TRUE(says(why, "30 have no place in the llama family: "));
  EXPECT_TRUE(says(why, "odd.19 and 10 more"));
}

TEST(InitModelHf, ATensorThatTheIndexDoesNotPlaceIsADuplicateOrUnknown) {
  Scratch scratch;
  fs::path hf = tiny_model(scratch);
  fs::rename(hf / "model.safetensors", hf / "a.safetensors");
  ckpt::SafetensorsFile whole = ckpt::SafetensorsFile::open(hf / "a.safetensors");
  Json map = Json::object();
  for (const ckpt::TensorInfo& info : whole.tensors()) map.set(info.name, "a.safetensors");
  map.set("model.norm.weight", "b.safetensors");
  write_atomic(hf / "model.safetensors.index.json", Json::object().set("weight_map", map).dump());
  ckpt::write_safetensors(hf / "b.safetensors", {{"model.norm.weight", whole.view("model.norm.weight")}});
  EXPECT_TRUE(says(refusal(Exit::kData, [&] { init_model(options(hf, scratch / "out")); }),
                   "1 are duplicates, or unknown to the index: model.norm.weight in a.safetensors"));
}

TEST(InitModelHf, ReadsEachByteOnceAndSaysSo) {
  Scratch scratch;
  for (std::optional<Dtype> dtype : {std::optional<Dtype>(), std::optional(Dtype::kBF16)}) {
    InitModelOptions o =
        options(fs::exists(scratch / "hf") ? scratch / "hf" : tiny_model(scratch), scratch / (dtype ? "b" : "a"));
    o.dtype = dtype;
    std::string notes;
    o.report.note = [&](std::string_view note) { notes += note; };
    init_model(o);
    uint64_t bytes =
        static_cast<uint64_t>(arch::describe(arch::decoder_from_config(tiny_config())).parameter_count()) * 4;
    EXPECT_TRUE(says(notes, fmt::format("read {0} bytes of tensors, predicted {0};", bytes)));
    EXPECT_TRUE(says(notes, "peak memory "));
  }
}

TEST(InitModelHf, NamesMissingUnexpectedAndMisshapenTensors) {
  Scratch scratch;
  Json config = tiny_config(false);
  Named whole = random_tensors(arch::describe(arch::decoder_from_config(config)));
  auto why = [&](const Named& tensors) {
    fs::path dir = write_model(scratch / "hf", config, tensors);
    std::string text = refusal(Exit::kData, [&] { init_model(options(dir, scratch / "out")); });
    fs::remove_all(dir);
    return text;
  };
  Named missing(whole.begin(), whole.end() - 1), more = whole, wrong = whole;
  EXPECT_TRUE(says(why(missing), "missing: lm_head.weight"));
  more.emplace_back("model.layers.9.odd", HostTensor(Dtype::kF32, {1}));
  EXPECT_TRUE(says(why(more), "model.layers.9.odd"));
  wrong.back().second = HostTensor(Dtype::kF32, {kHidden, kVocab});
  EXPECT_TRUE(says(why(wrong), "lm_head.weight is [32, 259], wanted [259, 32]"));
  EXPECT_FALSE(fs::exists(scratch / "out"));
}

Named poisoned(Dtype dtype) {
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(tiny_config())), dtype);
  for (auto& [name, tensor] : tensors) {
    if (name != "model.layers.1.mlp.up_proj.weight") continue;
    const float values[2] = {NAN, -INFINITY};
    convert(std::as_bytes(std::span(values)), Dtype::kF32, {tensor.data(), 2 * size_of(dtype)}, dtype);
  }
  return tensors;
}

TEST(InitModelHf, WeightsThatAreNotFiniteAreNamedInAWarning) {
  for (Dtype dtype : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
    Scratch scratch;
    InitModelOptions o = options(write_model(scratch / "hf", tiny_config(), poisoned(dtype)), scratch / "out");
    std::string warned;
    o.report.warning = [&](std::string_view text) { warned += text; };
    EXPECT_TRUE(fs::exists(init_model(o)));
    EXPECT_TRUE(says(warned, "1 tensors hold NaN or infinity: model.layers.1.mlp.up_proj.weight (2 of 1536 values)"))
        << warned;
  }
}

TEST(InitModelHf, StrictRefusesWeightsThatAreNotFiniteAndLeavesNothing) {
  Scratch scratch;
  InitModelOptions o = options(write_model(scratch / "hf", tiny_config(), poisoned(Dtype::kF32)), scratch / "out");
  o.strict = true;
  EXPECT_TRUE(says(refusal(Exit::kData, [&] { init_model(o); }), "model.layers.1.mlp.up_proj.weight"));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()), 1);
}

TEST(InitModelHf, AConversionThatOverflowsIsWarnedOf) {
  Scratch scratch;
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(tiny_config())));
  tensors[0].second.as<float>()[3] = 1e30f;
  InitModelOptions o = options(write_model(scratch / "hf", tiny_config(), tensors), scratch / "out");
  o.dtype = Dtype::kF16;
  std::string warned;
  o.report.warning = [&](std::string_view text) { warned += text; };
  init_model(o);
  EXPECT_TRUE(says(warned, tensors[0].first + " (1 of ")) << warned;
}

TEST(InitModelHf, ADirectoryWithoutTokenizerIsMissingInput) {
  Scratch scratch;
  fs::path hf = tiny_model(scratch);
  fs::remove(hf / "tokenizer.json");
  EXPECT_TRUE(says(refusal(Exit::kNoInput, [&] { init_model(options(hf, scratch / "out")); }), "tokenizer.json"));
}

TEST(InitModelHf, AnUnreadableSideFileIsRefusedNotCopied) {
  for (const char* name : {"tokenizer_config.json", "generation_config.json", "special_tokens_map.json"})
    for (const char* bytes : {"{", "[]", ""}) {
      Scratch scratch;
      fs::path hf = tiny_model(scratch);
      write_atomic(hf / name, bytes);
      EXPECT_TRUE(says(refusal(Exit::kData, [&] { init_model(options(hf, scratch / "out")); }), name));
      EXPECT_FALSE(fs::exists(scratch / "out"));
    }
}

// A file-size limit stops a write with EFBIG, as a full disk does with ENOSPC.
TEST(InitModelHf, AFullDiskIsExit74AndLeavesNothing) {
  Scratch scratch;
  fs::path hf = tiny_model(scratch);
  for (rlim_t limit : {rlim_t{0}, rlim_t{1}, rlim_t{200}, rlim_t{3000}, rlim_t{50000}, rlim_t{100000}}) {
    pid_t pid = fork();
    if (pid == 0) {
      signal(SIGXFSZ, SIG_IGN);
      rlimit now{limit, RLIM_INFINITY};
      setrlimit(RLIMIT_FSIZE, &now);
      try {
        init_model(options(hf, scratch / "out"));
      } catch (const Error& error) {
        _exit(static_cast<int>(error.code()));
      }
      _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 74) << "at " << limit << " bytes";
    EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()), 1) << "at " << limit;
  }
}

TEST(InitModelHf, ReportsBytesWrittenUpToTheTotal) {
  Scratch scratch;
  InitModelOptions o = options(tiny_model(scratch), scratch / "out");
  uint64_t last = 0, total = 0;
  o.report.progress = [&](std::string_view, uint64_t done, uint64_t all) {
    EXPECT_TRUE(done > last || last == 0) << done;  // the first time before anything is there
    last = done, total = all;
  };
  init_model(o);
  EXPECT_EQ(last, total);
  EXPECT_GT(total, 0u);
}

TEST(PlanModel, PredictsTheBytesAndTouchesNothing) {
  Scratch scratch;
  InitModelOptions o = options(tiny_model(scratch), scratch / "out");
  Json plan = plan_model(o);
  EXPECT_FALSE(fs::exists(scratch / "out"));
  ckpt::Checkpoint open = ckpt::Checkpoint::open(init_model(o));
  int64_t bytes = 0;
  for (const std::string& name : open.names()) bytes += static_cast<int64_t>(open.view(name).bytes());
  EXPECT_EQ(plan.at("bytes").as_int(), bytes);
  EXPECT_EQ(plan.at("aliases").at("lm_head.weight").as_string(), "model.embed_tokens.weight");
}

}  // namespace
}  // namespace sf::tool
