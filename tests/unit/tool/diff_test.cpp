// SPDX-License-Identifier: Apache-2.0
#include "tool/shard_diff.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fixture.h"
#include "tool/init_model.h"

namespace sf::tool {
namespace {

namespace fs = std::filesystem;

fs::path file_of(const Scratch& scratch, const std::string& name, const std::vector<float>& values, Shape shape,
                 Dtype as = Dtype::kF32) {
  HostTensor tensor(as, shape);
  convert(std::as_bytes(std::span(values)), Dtype::kF32, {tensor.data(), tensor.bytes()}, as);
  ckpt::write_safetensors(scratch / name, {{"w", tensor.view()}});
  return scratch / name;
}

fs::path checkpoint(const Scratch& scratch, const std::string& name, std::optional<Dtype> dtype = std::nullopt) {
  InitModelOptions o;
  o.source = scratch / "hf";
  o.out = scratch / name;
  o.dtype = dtype;
  return init_model(o);
}

TEST(Diff, OfEqualTensorsCountsThem) {
  Scratch scratch;
  tiny_model(scratch);
  Diff found = diff({.a = scratch / "hf", .b = checkpoint(scratch, "out")});
  EXPECT_TRUE(found.equal) << found.table;
  EXPECT_EQ(found.json.at("tensors").as_int(), 2 + 9 * kLayers);
  EXPECT_TRUE(says(found.table, "no difference in 38 tensors"));
}

TEST(Diff, NamesTensorIndexUlpAndValuesOfTheFirstDifference) {
  Scratch scratch;
  std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = a;
  b[4] = std::nextafter(std::nextafter(5.0f, 9.0f), 9.0f);
  b[5] = std::nextafter(6.0f, 0.0f);
  Diff found = diff({.a = file_of(scratch, "a", a, {2, 3}), .b = file_of(scratch, "b", b, {2, 3})});
  EXPECT_FALSE(found.equal);
  EXPECT_TRUE(says(found.table, "w  2 of 6 differ as F32, at most 2 ulp apart; first [1,1]: 5 against 5.00000095"));
  EXPECT_TRUE(says(found.table, "1 of 1 tensors differ, 2 of 6 elements"));
  EXPECT_EQ(found.json.at("first").dump(), R"({"tensor":"w","index":[1,1]})");
  EXPECT_EQ(found.json.at("differences").as_array()[0].at("most_ulp").as_int(), 2);
}

TEST(Diff, AllowsAsManyUlpAsAskedFor) {
  Scratch scratch;
  fs::path a = file_of(scratch, "a", {1, -0.0f}, {2}),
           b = file_of(scratch, "b", {std::nextafter(1.0f, 2.0f), 0.0f}, {2});
  EXPECT_EQ(diff({.a = a, .b = b}).json.at("elements_differ").as_int(), 2);  // the sign of zero is a bit too
  EXPECT_EQ(diff({.a = a, .b = b, .most_ulp = 0}).json.at("elements_differ").as_int(), 1);
  EXPECT_TRUE(diff({.a = a, .b = b, .most_ulp = 1}).equal);
}

TEST(Diff, OfANumberAndNaNIsNoDistance) {
  Scratch scratch;
  fs::path a = file_of(scratch, "a", {1, NAN}, {2}), b = file_of(scratch, "b", {1, 2}, {2});
  Diff found = diff({.a = a, .b = b, .most_ulp = UINT64_MAX - 1});
  EXPECT_TRUE(says(found.table, "a number and NaN among them; first [1]: nan against 2"));
  EXPECT_TRUE(found.json.at("differences").as_array()[0].at("most_ulp").is_null());
  EXPECT_TRUE(diff({.a = a, .b = a}).equal);
}

TEST(Diff, OfTwoTypesComparesAsTheNarrower) {
  Scratch scratch;
  std::vector<float> values = {1.00390625f, 3, 1e-3f};
  fs::path wide = file_of(scratch, "a", values, {3}), narrow = file_of(scratch, "b", values, {3}, Dtype::kBF16);
  Diff bits = diff({.a = wide, .b = narrow});
  EXPECT_TRUE(says(bits.table, "w  type F32 against BF16"));
  EXPECT_EQ(bits.json.at("elements_differ").as_int(), 0);
  EXPECT_TRUE(diff({.a = wide, .b = narrow, .values = true}).equal);
  EXPECT_FALSE(diff({.a = narrow, .b = file_of(scratch, "c", values, {3}, Dtype::kF16), .values = true}).equal);
}

TEST(Diff, NamesShapesAndTensorsOfOneSideOnly) {
  Scratch scratch;
  HostTensor x(Dtype::kF32, {2}), y(Dtype::kF32, {1, 2});
  ckpt::write_safetensors(scratch / "a", {{"both", x.view()}, {"left", x.view()}});
  ckpt::write_safetensors(scratch / "b", {{"both", y.view()}, {"right", x.view()}});
  Diff found = diff({.a = scratch / "a", .b = scratch / "b"});
  EXPECT_TRUE(says(found.table, "both  shape [2] against [1, 2]"));
  EXPECT_TRUE(says(found.table, "left  only in " + (scratch / "a").string()));
  EXPECT_TRUE(says(found.table, "right  only in " + (scratch / "b").string()));
}

TEST(Diff, FollowsAliasesAndNamesALostOne) {
  Scratch scratch;
  Json config = tiny_config(true), untied = tiny_config(false);
  Named tensors = random_tensors(arch::describe(arch::decoder_from_config(config)));
  write_model(scratch / "a", config, tensors);
  tensors.emplace_back("lm_head.weight", tensors[0].second);
  write_model(scratch / "b", untied, tensors);
  Diff found = diff({.a = scratch / "a", .b = scratch / "b"});
  EXPECT_EQ(found.json.at("elements_differ").as_int(), 0);
  EXPECT_TRUE(says(found.table, "lm_head.weight  alias of model.embed_tokens.weight against no alias"));
  EXPECT_TRUE(diff({.a = scratch / "a", .b = scratch / "b", .values = true}).equal);
  tensors.back().second = HostTensor::copy_of(tensors[0].second.view());
  tensors.back().second.as<float>()[3] += 1;
  write_model(scratch / "c", untied, tensors);
  EXPECT_TRUE(
      says(diff({.a = scratch / "a", .b = scratch / "c", .values = true}).table, "lm_head.weight  1 of 8288 differ"));
}

TEST(Diff, OfAGgufFileAndItsCheckpointIsNothing) {
  Scratch scratch;
  GgufBuilder builder = gguf_keys();
  write_atomic(scratch / "m.gguf", add_layers(builder).bytes());
  InitModelOptions o;
  o.source = scratch / "m.gguf";
  o.out = scratch / "out";
  Diff found = diff({.a = scratch / "m.gguf", .b = init_model(o)});
  EXPECT_TRUE(found.equal) << found.table;
  EXPECT_EQ(found.json.at("tensors").as_int(), 2 + 9 * kLayers);
}

TEST(Diff, ListsTwentyAndCountsTheRest) {
  Scratch scratch;
  tiny_model(scratch);
  checkpoint(scratch, "bf16", Dtype::kBF16);
  std::string table = diff({.a = scratch / "hf", .b = scratch / "bf16"}).table;
  EXPECT_TRUE(says(table, "and 18 more lines\n38 of 38 tensors differ, 0 of "));
}

}  // namespace
}  // namespace sf::tool
