// SPDX-License-Identifier: Apache-2.0
#include "tool/eval_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "score/shards.h"
#include "tool/eval_data.h"
#include "tool/json_lines.h"

namespace sf::tool {
namespace {

struct Part {
  score::Scores scores;
  score::Shard shard;
  const std::string& file() const { return scores.origin; }
};

Part part_of(const std::filesystem::path& file) {
  Part part{.scores = read_scores(file, HalfLine::kRefuse), .shard = {}};
  const Json* shard = part.scores.header.find("shard");
  SF_CHECK(shard && shard->is_string(), Exit::kData, "{}: no shard of a set: it was scored without --shard",
           part.file());
  try {
    part.shard = score::parse_shard(shard->as_string());
  } catch (const Error& error) {
    fail(Exit::kData, "{}:1: the header's {}", part.file(), error.message());
  }
  return part;
}

// All parts of a directory in order. kData naming the directory for gaps and overlaps.
std::vector<Part> parts_of(const std::string& dir) {
  std::vector<Part> parts;
  std::vector<score::Shard> shards;
  for (const std::filesystem::path& file : scores_files(dir)) {
    parts.push_back(part_of(file));
    shards.push_back(parts.back().shard);
  }
  try {
    score::require_complete(shards);
  } catch (Error& error) {
    error.add_context(dir);
    throw;
  }
  std::ranges::sort(parts, {}, [](const Part& part) { return part.shard.index; });
  return parts;
}

// A question belongs to one shard alone.
void refuse_overlaps(const std::vector<Part>& parts) {
  std::map<std::string_view, std::string_view> owner;
  for (const Part& part : parts)
    for (const std::string& id : part.scores.ids) {
      auto [at, is_new] = owner.emplace(id, part.file());
      SF_CHECK(is_new, Exit::kData, "question {} has verdicts in {} and in {}", id, at->second, part.file());
    }
}

// Of each part its own: the shard, how many answers, and which.
bool is_own(std::string_view key) {
  return key == "shard" || key == "answers" || key == "answers_digest";
}

// Answers without facts say nothing of how they were made: then only shards of one file belong together. A shard
// without questions has no answers that could be others'.
void require_one_file(const Part& a, const Part& b) {
  if (a.scores.header.find("facts") || a.scores.answers.empty() || b.scores.answers.empty()) return;
  const std::string one = a.scores.header.get_string("answers_digest", ""),
                    other = b.scores.header.get_string("answers_digest", "");
  SF_CHECK(one == other, Exit::kProtocol,
           "{} and {} cannot be merged: they judge different files of answers ({:.16} and {:.16}), and nothing says "
           "that these belong together; put the answers into one file and score its shards",
           a.file(), b.file(), one, other);
}

// kProtocol naming the first thing that one part says and the other does not, or otherwise.
void require_one_set(const Part& a, const Part& b) {
  for (const Part* part : {&a, &b})
    for (const auto& [key, value] : part->scores.header.as_object()) {
      const Json *one = a.scores.header.find(key), *other = b.scores.header.find(key);
      SF_CHECK(is_own(key) || (one && other && *one == *other), Exit::kProtocol,
               "{} and {} cannot be merged: {} is {} and {}", a.file(), b.file(), key, one ? one->dump() : "none",
               other ? other->dump() : "none");
    }
}

// The header of the whole: what all parts share.
Json whole_header(const std::vector<Part>& parts) {
  Json header = Json::object();
  int64_t answers = 0;
  std::string digests;
  const auto first = std::ranges::find_if(parts, [](const Part& part) { return !part.scores.answers.empty(); });
  for (const Part& part : parts) {
    require_one_set(parts[0], part);
    if (first != parts.end()) require_one_file(*first, part);
    answers += std::ssize(part.scores.answers);
    digests += part.scores.header.get_string("answers_digest", "");
  }
  for (const auto& [key, value] : parts[0].scores.header.as_object())
    if (!is_own(key)) header.set(key, value);
  header.set("answers", answers);
  return header.set("answers_digest", sha256_hex(digests));
}

}  // namespace

Merged merge_shards(app::Invocation& invocation, const std::string& dir, const std::filesystem::path& out) {
  check_output(out);
  refuse_among_inputs(out, dir);
  std::vector<Part> parts = parts_of(dir);
  refuse_overlaps(parts);
  std::string text = whole_header(parts).dump() + "\n";
  size_t answered = 0, answers = 0;
  for (const Part& part : parts) {
    answered += part.scores.ids.size();
    answers += part.scores.answers.size();
    each_line(part.file(), HalfLine::kRefuse, [&](std::string_view line, size_t number) {
      if (number > 1) text.append(line).append("\n");
    });
  }
  auto questions = static_cast<size_t>(parts[0].scores.header.get_int("questions", 0));
  if (answered != questions) invocation.warn(fmt::format("{} of {} questions have answers", answered, questions));
  if (!invocation.plan_only()) write_atomic(out, text);
  return {.shards = parts.size(), .questions = answered, .answers = answers};
}

int eval_merge(app::Invocation& invocation) {
  const std::filesystem::path out = invocation.get("output");
  check_verdicts_output(out);
  const Merged merged = merge_shards(invocation, invocation.positional().front(), out);
  Json json = Json::object().set("path", out.string()).set("shards", static_cast<int64_t>(merged.shards));
  json.set("questions", static_cast<int64_t>(merged.questions)).set("answers", static_cast<int64_t>(merged.answers));
  invocation.result(invocation.json_output() ? json.dump() : out.string());
  return 0;
}

}  // namespace sf::tool
