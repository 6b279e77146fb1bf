// SPDX-License-Identifier: Apache-2.0
#include "tool/eval_merge.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "score/shards.h"
#include "tool/eval_data.h"
#include "tool/json_lines.h"

namespace sf::tool {
namespace {

struct Part {
  std::filesystem::path file;
  score::Shard shard;
  Json header;
};

Part part_of(const std::filesystem::path& file) {
  Part part{.file = file, .shard = {}, .header = {}};
  each_line(file, false, [&](std::string_view line, size_t number) {
    if (number == 1) part.header = Json::parse(line, file.string());
  });
  const Json* shard = part.header.find("shard");
  SF_CHECK(shard && shard->is_string(), Exit::kData, "{}: no shard of a set: it was scored without --shard",
           file.string());
  part.shard = score::parse_shard(shard->as_string());
  return part;
}

// The header of the whole: what all parts share. kProtocol naming the first difference.
Json whole_header(const std::vector<Part>& parts) {
  Json header = Json::object();
  int64_t answers = 0;
  std::string digests;
  for (const Part& part : parts) {
    answers += part.header.get_int("answers", 0);
    digests += part.header.get_string("answers_digest", "");
  }
  for (const auto& [key, value] : parts[0].header.as_object()) {
    if (key == "shard") continue;
    if (key == "answers") header.set(key, answers);
    if (key == "answers_digest") header.set(key, sha256_hex(digests));
    if (key == "answers" || key == "answers_digest") continue;
    for (const Part& part : parts) {
      const Json* other = part.header.find(key);
      SF_CHECK(other && *other == value, Exit::kProtocol, "{} and {} cannot be merged: {} is {} and {}",
               parts[0].file.string(), part.file.string(), key, value.dump(), other ? other->dump() : "none");
    }
    header.set(key, value);
  }
  return header;
}

}  // namespace

int eval_merge(app::Invocation& invocation) {
  std::filesystem::path out = invocation.get("output");
  refuse_among_inputs(out, invocation.positional().front());
  std::vector<Part> parts;
  for (const std::filesystem::path& file : scores_files(invocation.positional().front()))
    parts.push_back(part_of(file));
  std::vector<score::Shard> shards;
  for (const Part& part : parts) shards.push_back(part.shard);
  score::require_complete(shards);
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.shard.index < b.shard.index; });
  std::string text = whole_header(parts).dump() + "\n";
  score::ScoresReader check(out.string());  // refuses an answer that two shards hold
  check.take(std::string_view(text).substr(0, text.size() - 1));
  for (const Part& part : parts)
    each_line(part.file, false, [&](std::string_view line, size_t number) {
      if (number == 1) return;
      check.take(line);
      text.append(line).append("\n");
    });
  score::Scores whole = check.finish();
  auto questions = static_cast<size_t>(whole.header.get_int("questions", 0));
  if (whole.ids.size() != questions)
    invocation.warn(fmt::format("{} of {} questions have answers", whole.ids.size(), questions));
  if (!invocation.plan_only()) {
    refuse_to_replace(out);
    write_atomic(out, text);
  }
  Json json = Json::object().set("path", out.string()).set("shards", static_cast<int64_t>(parts.size()));
  json.set("questions", static_cast<int64_t>(whole.ids.size()))
      .set("answers", static_cast<int64_t>(whole.answers.size()));
  invocation.result(invocation.json_output() ? json.dump() : out.string());
  return 0;
}

}  // namespace sf::tool
