// SPDX-License-Identifier: Apache-2.0
// tests/golden/specforge_state: a training state as SpecForge saves it (by torch.save of torch 2.11.0), the draft's
// config.json and the same tensors as safetensors.
#include "tool/export_model.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "arch/eagle3.h"
#include "ckpt/draft.h"
#include "fixture.h"
#include "tool/import_model.h"
#include "tool/init_draft.h"
#include "tool/init_model.h"
#include "tool/reshard.h"
#include "tool/shard_diff.h"
#include "tool/shard_verify.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

fs::path golden(const char* name) {
  const char* root = std::getenv("SF_GOLDEN_ROOT");
  return fs::path(root ? root : "tests/golden") / "specforge_state" / name;
}

fs::path target_of(const Scratch& scratch, bool tied = true) {
  InitModelOptions o;
  o.source = tiny_model(scratch, tied);
  o.out = scratch / "target";
  return init_model(o);
}

fs::path draft_of(const Scratch& scratch, const fs::path& target) {
  write_atomic(scratch / "chats.jsonl",
               R"({"messages": [{"role": "user", "content": "zz"}, {"role": "assistant", "content": "aab"}]})"
               "\n");
  InitDraftOptions o;
  o.target = target;
  o.data = scratch / "chats.jsonl";
  o.out = scratch / "draft";
  o.draft_vocab = 7;
  return init_draft(o);
}

fs::path exported(const Scratch& scratch, const fs::path& from, const std::string& to,
                  std::optional<Dtype> dtype = std::nullopt) {
  ExportOptions o;
  o.checkpoint = from;
  o.out = scratch / ("for-" + to);
  o.to = to;
  o.dtype = dtype;
  return export_model(o);
}

std::string names_in(const fs::path& dir) {
  std::string all;
  for (const std::string& name : ckpt::Checkpoint::open(dir).names()) all += name + "\n";
  return all;
}

TEST(Export, OfAModelHoldsItsBitsAndFilesWithoutAManifest) {
  for (bool tied : {true, false}) {
    Scratch scratch;
    fs::path target = target_of(scratch, tied), out = exported(scratch, target, "hf");
    EXPECT_TRUE(diff({.a = target, .b = out}).equal);
    EXPECT_FALSE(fs::exists(out / "manifest.json"));
    EXPECT_EQ(says(names_in(out), "lm_head.weight"), !tied);
    EXPECT_EQ(read_file(out / "tokenizer.json"), read_file(target / "tokenizer.json"));
    ckpt::Checkpoint open = ckpt::Checkpoint::open(out);
    EXPECT_EQ(open.config().at("unknown_to_us").as_string(), "kept");
    EXPECT_EQ(open.files()[0].metadata().at("shardforge_identity"), ckpt::Checkpoint::open(target).identity());
  }
}

TEST(Export, RoundsOnceToTheTypeAskedFor) {
  Scratch scratch;
  fs::path target = target_of(scratch), out = exported(scratch, target, "vllm", Dtype::kBF16);
  EXPECT_TRUE(diff({.a = target, .b = out, .values = true}).equal);
  EXPECT_EQ(ckpt::Checkpoint::open(out).config().at("torch_dtype").as_string(), "bfloat16");
}

TEST(Export, OfADraftHasTheKeysEachReaderAsksFor) {
  Scratch scratch;
  fs::path draft = draft_of(scratch, target_of(scratch));
  std::string hf = names_in(exported(scratch, draft, "hf")), sglang = names_in(exported(scratch, draft, "sglang")),
              vllm = names_in(exported(scratch, draft, "vllm"));
  for (const char* name : {"fc.weight\n", "norm.weight\n", "lm_head.weight\n", "d2t\n"})
    for (const std::string& names : {hf, sglang, vllm}) EXPECT_TRUE(says(names, name));
  EXPECT_TRUE(says(hf, "embed_tokens.weight\n"));
  EXPECT_FALSE(says(sglang + vllm, "embed"));
  EXPECT_TRUE(says(sglang, "t2d\n"));
  EXPECT_FALSE(says(vllm, "t2d\n"));
  EXPECT_TRUE(says(sglang, "midlayer.self_attn.q_proj.weight\n"));
  EXPECT_TRUE(says(vllm, "layers.0.self_attn.q_proj.weight\n"));
  EXPECT_FALSE(says(vllm, "midlayer"));
}

TEST(Export, OfADraftSaysWhatServersReadInConfig) {
  Scratch scratch;
  fs::path draft = draft_of(scratch, target_of(scratch));
  const Json config = ckpt::Checkpoint::open(exported(scratch, draft, "sglang", Dtype::kBF16)).config();
  EXPECT_EQ(config.at("architectures").as_array()[0].as_string(), "LlamaForCausalLMEagle3");
  EXPECT_EQ(config.at("draft_vocab_size").as_int(), 7);
  EXPECT_EQ(config.at("eagle_config").at("eagle_aux_hidden_state_layer_ids").dump(), "[1,1,0]");
  EXPECT_EQ(config.at("torch_dtype").as_string(), "bfloat16");
  EXPECT_TRUE(config.contains("rope_theta") && config.contains("rope_parameters") && config.contains("rope_scaling"));
}

TEST(Export, AnotherTargetsEmbeddingIsRefused) {
  Scratch scratch;
  fs::path draft = draft_of(scratch, target_of(scratch));
  Json config = tiny_config();
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)));
  tensors[0].second.as<float>()[0] += 1;
  ExportOptions o{
      .checkpoint = draft, .out = scratch / "x", .target = write_model(scratch / "b", config, tensors), .to = "hf"};
  refusal(Exit::kProtocol, [&] { export_model(o); });
  EXPECT_FALSE(fs::exists(scratch / "x"));
}

TEST(Export, ACheckpointThatChangedIsRefusedNamingTheTensorByEveryVerbThatReadsIt) {
  Scratch scratch;
  fs::path target = target_of(scratch), file = target / "model.safetensors";
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_atomic(file, bytes);
  const std::string_view wanted = "the bytes of tensor model.norm.weight are not those that were published";
  for (std::optional<Dtype> dtype : {std::optional<Dtype>(), std::optional(Dtype::kBF16)}) {
    EXPECT_TRUE(says(refusal(Exit::kData, [&] { exported(scratch, target, "hf", dtype); }), wanted));
    InitModelOptions model;
    model.source = target;
    model.out = scratch / "again";
    model.dtype = dtype;
    EXPECT_TRUE(says(refusal(Exit::kData, [&] { init_model(model); }), wanted));
    ImportOptions import;
    import.source = target;
    import.out = scratch / "imported";
    import.dtype = dtype;
    EXPECT_TRUE(says(refusal(Exit::kData, [&] { import_model(import); }), wanted));
  }
  EXPECT_FALSE(fs::exists(scratch / "again") || fs::exists(scratch / "imported") || fs::exists(scratch / "for-hf"));
}

TEST(Reshard, KeepsIdentityAliasesMomentsAndFiles) {
  Scratch scratch;
  Json config = tiny_config();
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)));
  ckpt::Manifest manifest;
  manifest.kind = "train";
  manifest.step = 7;
  manifest.aliases = {{"lm_head.weight", "model.embed_tokens.weight"}};
  manifest.buffers["rotary"] = {};
  std::vector<std::pair<std::string, TensorView>> views;
  for (const auto& [name, tensor] : tensors) views.emplace_back(name, tensor.view());
  ckpt::Publisher publisher(scratch / "run");
  write_atomic(publisher.dir() / "tokenizer.json", "{}");
  ckpt::write_safetensors(publisher.dir() / "optimizer.safetensors",
                          {{"model.norm.weight.exp_avg", tensors.back().second.view()}});
  fs::path run = publisher.commit(views, config, manifest);
  fs::path split = reshard({.checkpoint = run, .out = scratch / "split", .shard_bytes = 40000});
  fs::path whole = reshard({.checkpoint = split, .out = scratch / "whole"});
  EXPECT_GE(ckpt::Checkpoint::open(split).files().size(), 4u);
  for (const fs::path& dir : {split, whole}) {
    EXPECT_TRUE(diff({.a = run, .b = dir}).equal);
    EXPECT_EQ(verify(dir), std::vector<std::string>{});
    EXPECT_EQ(ckpt::Checkpoint::open(dir).manifest().step, 7);
  }
  EXPECT_EQ(read_file(whole / "model.safetensors"), read_file(run / "model.safetensors"));
  EXPECT_EQ(read_file(whole / "manifest.json"), read_file(run / "manifest.json"));
}

TEST(Import, GivesBackWhatWasExported) {
  Scratch scratch;
  fs::path target = target_of(scratch), draft = draft_of(scratch, target);
  for (const char* to : {"hf", "sglang", "vllm"}) {
    ImportOptions o{
        .source = exported(scratch, draft, to), .out = scratch / (std::string("from-") + to), .target = target};
    fs::path back = import_model(o);
    EXPECT_TRUE(diff({.a = draft, .b = back}).equal) << to;
    EXPECT_EQ(verify(back), std::vector<std::string>{}) << to;
    EXPECT_EQ(ckpt::Checkpoint::open(back).config(), ckpt::Checkpoint::open(draft).config()) << to;
  }
  ImportOptions model{.source = exported(scratch, target, "hf2"), .out = scratch / "from-model"};
  EXPECT_TRUE(diff({.a = target, .b = import_model(model)}).equal);
}

TEST(Import, ReadsATrainingStateOfSpecForge) {
  Scratch scratch;
  fs::path target = target_of(scratch);
  fs::create_directory(scratch / "run-step5");
  fs::copy_file(golden("training_state.pt"), scratch / "run-step5" / "training_state.pt");
  ImportOptions o{.source = scratch / "run-step5",
                  .out = scratch / "out",
                  .target = target,
                  .draft_config = golden("draft_config.json")};
  fs::path draft = import_model(o);
  EXPECT_TRUE(diff({.a = golden("draft.safetensors"), .b = draft}).equal);
  EXPECT_EQ(verify(draft), std::vector<std::string>{});
  ckpt::Checkpoint open = ckpt::Checkpoint::open(draft);
  EXPECT_EQ(open.manifest().extra.at("source").at("step").as_int(), 5);
  EXPECT_EQ(arch::eagle3_from_config(open.config()).stored, Dtype::kBF16);
  ckpt::check_target(open, ckpt::Checkpoint::open(target));
}

TEST(Import, NamesEverythingThatADraftLacksOrHasTooMuch) {
  Scratch scratch;
  ckpt::SafetensorsFile from = ckpt::SafetensorsFile::open(golden("draft.safetensors"));
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const ckpt::TensorInfo& info : from.tensors()) {
    if (info.name != "fc.weight") tensors.emplace_back(info.name, from.view(info));
    if (info.name == "norm.weight") tensors.emplace_back("odd.weight", from.view(info));
  }
  ckpt::write_safetensors(scratch / "d.safetensors", tensors);
  ImportOptions o{.source = scratch / "d.safetensors",
                  .out = scratch / "out",
                  .target = target_of(scratch),
                  .draft_config = golden("draft_config.json")};
  std::string why = refusal(Exit::kData, [&] { import_model(o); });
  EXPECT_TRUE(says(why, "1 tensors that the draft needs are missing: fc.weight"));
  EXPECT_TRUE(says(why, "1 have no place in the draft: odd.weight"));
}

TEST(Import, AVocabularyMapThatLeavesTheVocabularyIsRefused) {
  Scratch scratch;
  ckpt::SafetensorsFile from = ckpt::SafetensorsFile::open(golden("draft.safetensors"));
  HostTensor d2t = HostTensor::copy_of(from.view("d2t"));
  for (int64_t wild : {int64_t{300}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    d2t.as<int64_t>()[0] = wild;
    std::vector<std::pair<std::string, TensorView>> tensors;
    for (const ckpt::TensorInfo& info : from.tensors())
      tensors.emplace_back(info.name, info.name == "d2t" ? d2t.view() : from.view(info));
    ckpt::write_safetensors(scratch / "d.safetensors", tensors);
    fs::path target = fs::exists(scratch / "target") ? scratch / "target" : target_of(scratch);
    ImportOptions o{.source = scratch / "d.safetensors",
                    .out = scratch / "out",
                    .target = target,
                    .draft_config = golden("draft_config.json")};
    refusal(Exit::kData, [&] { import_model(o); });
  }
}

TEST(Import, ADraftWithoutItsTargetIsMisuse) {
  Scratch scratch;
  ImportOptions o{
      .source = golden("training_state.pt"), .out = scratch / "out", .draft_config = golden("draft_config.json")};
  EXPECT_TRUE(says(refusal(Exit::kUsage, [&] { import_model(o); }), "--target"));
}

TEST(Experts, GoOutOneByOneAndComeBackFused) {
  Scratch scratch;
  Json config = tiny_config(false);
  config.set("architectures", Json(Json::Array{Json("Qwen3MoeForCausalLM")})).set("model_type", "qwen3_moe");
  config.set("num_experts", 3).set("num_experts_per_tok", 2).set("moe_intermediate_size", 12);
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)), Dtype::kBF16);
  InitModelOptions fused;
  fused.source = write_model(scratch / "fused", config, tensors);
  fused.out = scratch / "target";
  fs::path target = init_model(fused), out = exported(scratch, target, "hf");
  ckpt::Checkpoint single = ckpt::Checkpoint::open(out);
  EXPECT_FALSE(single.contains("model.layers.0.mlp.experts.gate_up_proj"));
  EXPECT_EQ(single.info("model.layers.0.mlp.experts.2.up_proj.weight").shape, (Shape{12, kHidden}));
  ckpt::Checkpoint whole = ckpt::Checkpoint::open(target);
  std::vector<float> both = floats_of(whole, "model.layers.0.mlp.experts.gate_up_proj");
  std::vector<float> up = floats_of(single, "model.layers.0.mlp.experts.2.up_proj.weight");
  EXPECT_TRUE(std::equal(up.begin(), up.end(), both.begin() + (2 * 24 + 12) * kHidden));  // expert 2, below its gate
  InitModelOptions again;
  again.source = out;
  again.out = scratch / "again";
  EXPECT_TRUE(diff({.a = target, .b = init_model(again)}).equal);
}

}  // namespace
}  // namespace sf::tool
