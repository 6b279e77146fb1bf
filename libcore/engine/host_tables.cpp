// SPDX-License-Identifier: Apache-2.0
#include "engine/host_tables.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "ops/optimizer_kernels.h"
#include "tensor/convert.h"

namespace sf::engine {
namespace {

constexpr int64_t kLoadPiece = int64_t{1} << 20;  // elements: bounds the bounce buffer of a bf16 load

}  // namespace

HostTables::HostTables(const plan::Schedule& plan, comm::Group& group, const HostOptions& options)
    : plan_(plan), group_(group), call_deadline_s_(options.call_deadline_s), tables_(plan.parameters.size()) {
  for (size_t p = 0; p < plan.parameters.size(); ++p) {
    const plan::Held& held = plan.parameters[p];
    if (held.residency != plan::Residency::kHost) continue;
    std::string tag = "host table " + held.name;
    uint64_t bytes = static_cast<uint64_t>(numel(held.shape)) * size_of(held.compute);
    auto source = options.sources.find(held.name);
    Kept& kept = kept_[p];
    kept.filled = source != options.sources.end();
    SF_ASSERT(!kept.filled || source->second.type == held.compute);
    kept.file = kept.filled ? std::make_unique<HostFile>(group, bytes, source->second, options.dir, call(tag))
                            : std::make_unique<HostFile>(group, bytes, options.dir, call(tag));
    at::TensorOptions type(tensor::to_scalar(held.compute));
    tables_[p] = bytes == 0 ? at::empty(held.shape, type) : at::from_blob(kept.file->bytes().data(), held.shape, type);
  }
}

comm::Call HostTables::call(std::string_view tag) const {
  return {tag, Deadline::after(Seconds(call_deadline_s_))};
}

void HostTables::load(size_t parameter, const ReadInterval& read) {
  auto found = kept_.find(parameter);
  if (found == kept_.end() || found->second.filled) return;
  SF_CHECK(!sealed_, Exit::kSoftware, "table {} was loaded again after its first use",
           plan_.parameters[parameter].name);
  const plan::Held& held = plan_.parameters[parameter];
  HostFile& file = *found->second.file;
  plan::Interval mine = plan::dim0_interval(held.shape, file.place(), file.mates());
  std::vector<float> piece;
  for (int64_t lo = mine.lo; lo < mine.hi; lo += kLoadPiece) {
    int64_t hi = std::min(lo + kLoadPiece, mine.hi);
    piece.resize(static_cast<size_t>(hi - lo));
    read(lo, hi, piece);
    std::byte* to = file.bytes().data() + static_cast<size_t>(lo) * size_of(held.compute);
    if (held.compute == Dtype::kF32)
      std::memcpy(to, piece.data(), piece.size() * sizeof(float));
    else
      ops::to_bf16(piece, {reinterpret_cast<uint16_t*>(to), piece.size()});
  }
}

void HostTables::seal() {
  for (auto& [p, kept] : kept_)
    if (!sealed_ && !kept.filled) kept.file->seal(group_, call("seal " + plan_.parameters[p].name));
  sealed_ = true;
}

std::vector<std::string> HostTables::lines() const {
  std::vector<std::string> lines;
  for (const auto& [p, kept] : kept_) {
    const plan::Held& held = plan_.parameters[p];
    lines.push_back(fmt::format("{}: {:.1f} MiB {}, {}, {} rank{} of this host", held.name,
                                static_cast<double>(kept.file->bytes().size()) / 1048576.0, name_of(held.compute),
                                kept.file->is_copy() ? "one copy" : "mapped where it lies", kept.file->mates(),
                                kept.file->mates() == 1 ? "" : "s"));
  }
  return lines;
}

}  // namespace sf::engine
