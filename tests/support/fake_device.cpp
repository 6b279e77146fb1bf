// SPDX-License-Identifier: Apache-2.0
#include "fake_device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

namespace sf {
namespace {

constexpr size_t kPage = 4096;

// Where the device's memory lies. Closed to everybody but for the time of a copy.
struct Memory {
  std::mutex mutex;
  std::map<const void*, size_t> pieces;           // held
  std::map<size_t, std::vector<void*>> released;  // closed, by size: to be given out again
  std::atomic<uint64_t> bytes{0};
  uint64_t peak = 0;
};

Memory& memory() {
  static Memory* one = new Memory;  // tensors of static storage may outlive everything else
  return *one;
}

void release(void* from) {
  std::lock_guard lock(memory().mutex);
  auto found = memory().pieces.find(from);
  if (found == memory().pieces.end()) return;
  memory().released[found->second].push_back(from);
  memory().bytes -= found->second;
  memory().pieces.erase(found);
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, fake_device()};
    size_t whole = (bytes + kPage - 1) / kPage * kPage;
    std::lock_guard lock(memory().mutex);
    std::vector<void*>& free = memory().released[whole];
    void* at = free.empty() ? mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : free.back();
    TORCH_CHECK(at != MAP_FAILED, "no memory for the fake device");
    if (!free.empty()) free.pop_back();
    memory().pieces[at] = whole;
    memory().bytes += whole;
    memory().peak = std::max<uint64_t>(memory().peak, memory().bytes);
    return {at, at, release, fake_device()};
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].peak = static_cast<int64_t>(memory().peak);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override { memory().peak = memory().bytes.load(); }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

Allocator& allocator() {
  static auto* one = new Allocator;
  return *one;
}

// A tensor's memory, open while this lives, as a tensor of the CPU.
class Open {
 public:
  explicit Open(const at::Tensor& tensor) : tensor_(tensor) {
    if (tensor.is_cpu()) return;
    from_ = tensor.storage().mutable_data();
    if (from_ == nullptr) return;
    bytes_ = memory().pieces.at(from_);
    mprotect(from_, bytes_, PROT_READ | PROT_WRITE);
  }
  ~Open() {
    if (from_) mprotect(from_, bytes_, PROT_NONE);
  }
  Open(const Open&) = delete;
  at::Tensor on_cpu() const {
    if (tensor_.is_cpu()) return tensor_;
    at::TensorOptions type(tensor_.scalar_type());
    if (tensor_.numel() == 0) return at::empty(tensor_.sizes(), type);
    return at::from_blob(tensor_.mutable_data_ptr(), tensor_.sizes(), tensor_.strides(), type);
  }

 private:
  at::Tensor tensor_;
  void* from_ = nullptr;
  size_t bytes_ = 0;
};

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  at::AutoDispatchBelowADInplaceOrView below;
  if (from.numel() == 0) return to;
  at::Tensor source = from.sizes() == to.sizes() ? from : from.expand(to.sizes());
  std::lock_guard lock(memory().mutex);
  bool same = !source.is_cpu() && !to.is_cpu() && source.storage().data() == to.storage().data();
  Open open_to(to);
  if (same) {
    Open both(source);
    open_to.on_cpu().copy_(both.on_cpu().clone());
    return to;
  }
  Open open_from(source);
  open_to.on_cpu().copy_(open_from.on_cpu());
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      size, stride, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

// The CPU's operator on copies. Tensors of the CPU may come along only as numbers, as a real device has it.
void on_copies(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  size_t count = op.schema().arguments().size();
  auto check = [&](const at::Tensor& each) {
    bool fits = !each.defined() || !each.is_cpu() || each.dim() == 0;
    TORCH_CHECK(fits, op.schema().name(), ": tensors of two devices");
  };
  for (const c10::IValue& value : torch::jit::last(*stack, count)) {
    if (value.isTensor()) check(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& each : value.toTensorVector()) check(each);
  }
  at::native::cpu_fallback(op, stack);
}

}  // namespace

at::Device fake_device() {
  return {at::DeviceType::PrivateUse1, 0};
}

uint64_t fake_device_bytes() {
  return memory().bytes;
}

namespace {

// One device, one stream, on which nothing is ever under way.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
  c10::Device exchangeDevice(c10::Device) const override { return fake_device(); }
  c10::Device getDevice() const override { return fake_device(); }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, fake_device()); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

const bool kRegistered = [] {
  c10::register_privateuse1_backend("fake");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator());
  return true;
}();

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_copies>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", as_strided);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("resize_", at::native::resize_);
  library.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
}

}  // namespace
}  // namespace sf
