// SPDX-License-Identifier: Apache-2.0
#include "tool/inspect_stream.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "stream/feature_dir.h"
#include "stream/handle.h"
#include "tool/show_mask.h"

namespace sf::tool {
namespace {

constexpr double kHandleWaitS = 60;

void show_handle(app::Invocation& invocation, const stream::Handle& handle) {
  if (!invocation.json_output()) {
    std::string text = handle.shown();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    invocation.result(text);
    return;
  }
  Json json = handle.to_json();
  json.set("token", "masked");  // whoever knows it may join
  invocation.result(json.dump());
}

int show_directory(app::Invocation& invocation, const std::filesystem::path& dir) {
  SF_CHECK(!std::filesystem::exists(dir / "manifest.json") && !std::filesystem::exists(dir / "config.json"),
           Exit::kData, "{} is a checkpoint, no directory of features; sf-shard inspect {} shows it", dir.string(),
           dir.string());
  std::optional<stream::Contract> contract = stream::published_contract(dir);
  SF_CHECK(contract, Exit::kData, "{} is no directory of features: it has no contract.json", dir.string());
  const bool rows = invocation.has("rows"), as_json = invocation.json_output();
  Json samples = Json::array();
  std::function<void(const stream::Sample&)> sink;
  if (rows)
    sink = [&](const stream::Sample& sample) {
      as_json ? samples.push(stream::summary_of(sample)) : invocation.result(stream::describe(sample));
    };
  stream::FeatureCounts counts = stream::inspect_features(dir, sink);
  if (as_json) {
    Json json = Json::object().set("contract", contract->to_json()).set("rows", counts.rows);
    json.set("voids", counts.voids).set("bytes", counts.bytes);
    if (rows) json.set("samples", std::move(samples));
    invocation.result(json.dump());
    return 0;
  }
  const Json promised = contract->to_json();
  for (const auto& [key, value] : promised.as_object())
    invocation.result(fmt::format("{:<16} {}", key, value.is_string() ? value.as_string() : value.dump()));
  invocation.result(
      fmt::format("{} rows, {} of them void, {} bytes; every hash is right", counts.rows, counts.voids, counts.bytes));
  return 0;
}

}  // namespace

int inspect_stream(app::Invocation& invocation) {
  const bool rows = invocation.has("rows");
  SF_CHECK(!invocation.has("mask") || !rows, Exit::kUsage, "--rows and --mask show different things; give one");
  if (invocation.has("mask")) return show_mask(invocation);
  SF_CHECK(!invocation.has("target") && !invocation.has("html"), Exit::kUsage, "--target and --html belong to --mask");
  app::settle_settings(invocation);
  std::string what = invocation.positional().front();
  const bool missing = what != "-" && !std::filesystem::exists(what);
  SF_CHECK(!rows || missing || std::filesystem::is_directory(what), Exit::kUsage,
           "--rows lists the samples of a directory of features; {} is a handle", what);
  if (what == "-") {
    SF_CHECK(!invocation.stdin_is_terminal(), Exit::kUsage,
             "a handle is wanted on standard input, which is a terminal");
    show_handle(invocation, stream::read_handle(STDIN_FILENO, Deadline::after(Seconds(kHandleWaitS))));
    return 0;
  }
  SF_CHECK(!missing, Exit::kNoInput, "{}: no such file or directory", what);
  if (std::filesystem::is_directory(what)) return show_directory(invocation, what);
  show_handle(invocation, stream::Handle::parse(read_file(what, stream::kMaxHandleBytes), what));
  return 0;
}

}  // namespace sf::tool
