// SPDX-License-Identifier: Apache-2.0
#include "engine/spill.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/fault.h"
#include "plan/schedule.h"
#include "tensor/device.h"

namespace sf::engine {

void Spill::open() {
  if (file_.valid()) return;
  std::string name = (dir_ / ".sf-boundaries-XXXXXX").string();
  file_ = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
  if (!file_.valid()) {
    fail(exit_of_errno(errno, Exit::kCantCreate),
         "mode offload keeps boundaries in a file in {}, which cannot be made there: {}", dir_.string(),
         errno_text(errno));
  }
  ::unlink(name.c_str());
}

void Spill::put(const std::string& name, const at::Tensor& value) {
  if (has(name)) return;
  open();
  at::Tensor bytes = tensor::on_host(value).contiguous();
  const auto* from = static_cast<const std::byte*>(bytes.const_data_ptr());
  SF_CHECK(::lseek(file_.get(), static_cast<off_t>(end_), SEEK_SET) >= 0, Exit::kIo, "{}: {}", dir_.string(),
           errno_text(errno));
  write_all(file_.get(), std::span(from, bytes.nbytes()), dir_);
  kept_[name] = {end_, value.sizes().vec(), value.scalar_type(), value.device()};
  end_ += plan::align_up(bytes.nbytes());
  peak_ = std::max(peak_, end_);
}

at::Tensor Spill::get(const std::string& name) const {
  const Kept& kept = fault("engine.wrong_boundary") ? kept_.begin()->second : kept_.at(name);
  at::Tensor value = at::empty(kept.shape, at::TensorOptions().dtype(kept.type));
  auto* to = static_cast<std::byte*>(value.mutable_data_ptr());
  pread_exact(file_.get(), std::span(to, value.nbytes()), kept.offset, dir_);
  return kept.device.is_cpu() ? value : value.to(kept.device);
}

void Spill::clear() {
  kept_.clear();
  end_ = 0;
}

}  // namespace sf::engine
