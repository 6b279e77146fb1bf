// SPDX-License-Identifier: Apache-2.0
#include "ckpt/buffers.h"

#include <fmt/format.h>

#include <span>

#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"

namespace sf::ckpt {
namespace {

std::string digest_of(const arch::Buffer& buffer) {
  return hex64(xxh3_64(std::as_bytes(std::span(buffer.values))));
}

std::string problem_of(const Checkpoint& open, const arch::Buffer& buffer) {
  const auto& listed = open.manifest().buffers;
  auto record = listed.find(buffer.name);
  if (!buffer.stored && open.contains(buffer.name)) return "stored, but it is recomputed at every start";
  if (buffer.stored && open.contains(buffer.name) && open.info(buffer.name).dtype != buffer.dtype)
    return fmt::format("is {}, wanted {}", name_of(open.info(buffer.name).dtype), name_of(buffer.dtype));
  if (!open.has_manifest()) return "";
  if (record == listed.end()) return "the manifest does not list it: nothing says how it comes back";
  if (record->second.stored != buffer.stored)
    return fmt::format("the manifest lists it as {}", record->second.stored ? "stored" : "recomputed");
  if (record->second.dtype != buffer.dtype)
    return fmt::format("the manifest lists it as {}, wanted {}", name_of(record->second.dtype), name_of(buffer.dtype));
  const std::string& wanted = record->second.digest;
  if (!buffer.stored && !wanted.empty() && wanted != digest_of(buffer))
    return fmt::format("recomputed to digest {}, and was published with {}", digest_of(buffer), wanted);
  return "";
}

}  // namespace

std::map<std::string, BufferRecord> buffer_records(const arch::ModelSpec& spec) {
  std::map<std::string, BufferRecord> records;
  for (const arch::Buffer& buffer : spec.buffers)
    if (!fault("ckpt.skip_buffer"))
      records[buffer.name] = {buffer.dtype, buffer.shape, buffer.stored, buffer.stored ? "" : digest_of(buffer)};
  return records;
}

std::vector<std::string> buffer_problems(const Checkpoint& open, const arch::ModelSpec& spec) {
  std::vector<std::string> problems;
  for (const arch::Buffer& buffer : spec.buffers)
    if (std::string problem = problem_of(open, buffer); !problem.empty())
      problems.push_back(fmt::format("{}: {}", buffer.name, problem));
  for (const auto& [name, record] : open.manifest().buffers) {
    auto same = [&, &name = name](const arch::Buffer& buffer) { return buffer.name == name; };
    if (std::none_of(spec.buffers.begin(), spec.buffers.end(), same))
      problems.push_back(fmt::format("{}: listed as a buffer, which config.json does not describe", name));
  }
  return problems;
}

void check_buffers(const Checkpoint& open, const arch::ModelSpec& spec) {
  std::vector<std::string> problems = buffer_problems(open, spec);
  SF_CHECK(problems.empty(), Exit::kData, "{}: {}", open.dir().string(), fmt::join(problems, "; "));
}

}  // namespace sf::ckpt
