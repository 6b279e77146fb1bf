// SPDX-License-Identifier: Apache-2.0
#include "ckpt/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ckpt/as_published.h"

namespace sf::ckpt {
namespace {

// PEFT adapts an embedding and a head too, or saves them whole.
void refuse_tables(std::span<const std::string> left) {
  std::vector<std::string> tables;
  for (const std::string& name : left)
    if (name.find(".embed_tokens.") != std::string::npos || name.find(".lm_head.") != std::string::npos)
      tables.push_back(name);
  SF_CHECK(tables.empty(), Exit::kConfig,
           "an adapter of the embedding or the head is not supported: {}; adapt linear layers of blocks only",
           listed(tables));
}

void check_tensors(const Checkpoint& files, std::span<const arch::Adapter> adapters) {
  std::vector<std::string> missing, misshapen, left;
  std::set<std::string, std::less<>> known;
  for (const arch::Parameter& parameter : arch::parameters_of(adapters)) {
    known.insert(parameter.name);
    if (!files.contains(parameter.name))
      missing.push_back(parameter.name);
    else if (Shape found = files.info(parameter.name).shape; found != parameter.shape)
      misshapen.push_back(
          fmt::format("{} is {}, wanted {}", parameter.name, to_string(found), to_string(parameter.shape)));
  }
  for (const std::string& name : files.names())
    if (!known.contains(name)) left.push_back(name);
  refuse_tables(left);
  std::vector<std::string> faults;
  auto say = [&](const std::vector<std::string>& names, std::string_view what) {
    if (!names.empty()) faults.push_back(fmt::format("{} tensors {}: {}", names.size(), what, listed(names)));
  };
  say(missing, "are missing");
  say(misshapen, "have another shape than the target and the rank give them");
  say(left, "belong to nothing that the adapter's settings name");
  SF_CHECK(faults.empty(), Exit::kData, "{}: {}", files.dir().string(), fmt::join(faults, "; "));
}

}  // namespace

AdapterFiles::AdapterFiles(Checkpoint files, arch::Lora lora, std::vector<arch::Adapter> adapters)
    : files_(std::move(files)), lora_(std::move(lora)), adapters_(std::move(adapters)) {}

AdapterFiles AdapterFiles::open(const std::filesystem::path& dir, const arch::ModelSpec& spec) {
  Checkpoint files = Checkpoint::open(dir);
  SF_CHECK(arch::is_adapter_config(files.config()), Exit::kData, "{} holds no adapter: there is no adapter_config.json",
           dir.string());
  try {
    arch::Lora lora = arch::lora_from_config(files.config());
    std::vector<arch::Adapter> adapters = arch::adapters_of(lora, spec);
    check_tensors(files, adapters);
    check_as_published(files);
    if (files.has_manifest())
      for (const std::string& name : files.names()) check_tensor(files, name);  // small: all of it, at every start
    return {std::move(files), std::move(lora), std::move(adapters)};
  } catch (Error& error) {
    if (error.code() == Exit::kConfig) error.add_context(dir.string());
    throw;
  }
}

const arch::Adapter* AdapterFiles::find(std::string_view parameter) const {
  auto found =
      std::find_if(adapters_.begin(), adapters_.end(), [&](const auto& a) { return a.parameter == parameter; });
  return found == adapters_.end() ? nullptr : &*found;
}

std::vector<float> AdapterFiles::values(const std::string& name) const {
  std::vector<float> out(static_cast<size_t>(numel(files_.info(name).shape)));
  files_.read(name, 0, std::ssize(out), Dtype::kF32, std::as_writable_bytes(std::span(out)));
  return out;
}

void AdapterFiles::add_to(const arch::Adapter& adapter, int64_t lo, int64_t hi, std::span<float> to) const {
  SF_ASSERT(std::ssize(to) == hi - lo);
  const std::vector<float> a = values(adapter.a), b = values(adapter.b);
  const auto scale = static_cast<float>(adapter.scale);
  std::vector<float> sums(static_cast<size_t>(adapter.in));
  for (int64_t at = lo; at < hi;) {
    // One row of W, [expert, o]; the first and the last may be cut.
    int64_t row = at / adapter.in, begin = at % adapter.in, end = std::min(adapter.in, begin + hi - at);
    int64_t expert = row / adapter.out, o = row % adapter.out;
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t k = 0; k < adapter.rank; ++k) {
      const float weight = b[static_cast<size_t>(o * adapter.rank * adapter.experts + k * adapter.experts + expert)];
      const float* from = a.data() + (expert * adapter.rank + k) * adapter.in;
      for (int64_t i = begin; i < end; ++i) sums[static_cast<size_t>(i)] += weight * from[i];
    }
    for (int64_t i = begin; i < end; ++i)
      to[static_cast<size_t>(at - lo + i - begin)] += scale * sums[static_cast<size_t>(i)];
    at += end - begin;
  }
}

void read_merged(const Checkpoint& target, const AdapterFiles& adapter, std::string_view name, int64_t lo, int64_t hi,
                 Dtype as, std::span<std::byte> to) {
  const arch::Adapter* own = adapter.find(name);
  if (!own) return target.read(name, lo, hi, as, to);
  std::vector<float> wide(static_cast<size_t>(hi - lo));
  target.read(name, lo, hi, Dtype::kF32, std::as_writable_bytes(std::span(wide)));
  adapter.add_to(*own, lo, hi, wide);
  convert(std::as_bytes(std::span(wide)), Dtype::kF32, to, as);
}

}  // namespace sf::ckpt
