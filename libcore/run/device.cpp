// SPDX-License-Identifier: Apache-2.0
#include "run/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "comm/nccl.h"
#include "ops/kernels.h"
#include "tool/apply_training.h"

namespace sf::run {
namespace {

void* open_library(const std::string& file, std::string_view remedy) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library) return library;
  const char* why = dlerror();
  fail(Exit::kUnavailable, "engine.device = \"cuda\" needs {}: {}; {}", file, why ? why : "it cannot be opened",
       remedy);
}

std::string beside_libtorch(const char* library) {
  Dl_info here{};
  auto known = reinterpret_cast<void*>(&at::globalContext);
  if (dladdr(known, &here) == 0 || here.dli_fname == nullptr) return library;
  return (std::filesystem::path(here.dli_fname).parent_path() / library).string();
}

// Of this rank; ranks of a host that has fewer share them.
at::Device take_gpu(int place) {
  auto kind = at::DeviceType::CUDA;
  int found = c10::impl::hasDeviceGuardImpl(kind) ? c10::impl::getDeviceGuardImpl(kind)->deviceCount() : 0;
  SF_CHECK(found > 0, Exit::kUnavailable,
           "engine.device = \"cuda\", but no GPU was found on this host; use engine.device = \"cpu\"");
  at::Device device(kind, static_cast<at::DeviceIndex>(place % found));
  c10::impl::getDeviceGuardImpl(kind)->setDevice(device);
  return device;
}

// The contract of numbers: sums in fp32, one order of additions. A warning, not an end, where LibTorch has no such
// form.
void keep_numbers() {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(false, false);
  context.setDeterministicAlgorithms(true, true);
  context.setDeterministicFillUninitializedMemory(false);
}

}  // namespace

at::Device apply_device(app::Invocation& invocation) {
  if (tool::apply_device(invocation.settings()) == "cpu") {
    ops::use_plain(invocation.settings().get_string("engine.kernels") == "plain");
    return at::kCPU;
  }
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // read when cuBLAS starts: without it the order of sums may change
  open_library(beside_libtorch("libtorch_cuda.so"),
               "install LibTorch with its CUDA libraries, or use engine.device = \"cpu\"");
  at::Device device = take_gpu(invocation.ranks().local_rank);
  keep_numbers();
  invocation.log(fmt::format("segments are computed on {} ({})", device.str(), *gpu_name()));
  return device;
}

bool is_planned(at::Device device, app::Invocation& invocation) {
  return device.is_cpu() && invocation.settings().get_string("engine.kernels") == "own";
}

std::optional<std::string> gpu_name() {
  if (!c10::impl::hasDeviceGuardImpl(at::DeviceType::CUDA)) return std::nullopt;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  auto get = reinterpret_cast<int (*)(int*, int)>(driver ? dlsym(driver, "cuDeviceGet") : nullptr);
  auto name = reinterpret_cast<int (*)(char*, int, int)>(driver ? dlsym(driver, "cuDeviceGetName") : nullptr);
  std::array<char, 256> text{};
  int handle = 0, index = c10::impl::getDeviceGuardImpl(at::DeviceType::CUDA)->getDevice().index();
  bool known = get && name && get(&handle, index) == 0 && name(text.data(), text.size() - 1, handle) == 0;
  return known ? text.data() : "a GPU without a name";
}

std::unique_ptr<comm::Group> over_nccl(app::Invocation& invocation, std::unique_ptr<comm::Group> control) {
  void* library = open_library("libshardforge-cuda.so", "build where nvcc is found, or use another comm.group");
  auto table = reinterpret_cast<const sf_collectives* (*)()>(dlsym(library, "sf_cuda_collectives"));
  const sf_collectives* api = table ? table() : nullptr;
  SF_CHECK(api, Exit::kUnavailable,
           "comm.group = \"nccl\" ({}), but libshardforge-cuda was built without NCCL; use \"auto\"",
           invocation.settings().origin("comm.group"));
  bool fast = invocation.settings().get_string("engine.numerics") == "fast";
  comm::NcclOptions options{.fold = fast ? comm::Fold::kFast : comm::Fold::kExact};
  options.device = c10::impl::getDeviceGuardImpl(at::DeviceType::CUDA)->getDevice().index();
  return comm::make_nccl(*api, std::move(control), options);
}

}  // namespace sf::run
