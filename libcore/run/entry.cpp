// SPDX-License-Identifier: Apache-2.0
#include "run/entry.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include "base/error.h"
#include "tensor/memory.h"
#include "tensor/threads.h"
#include "tool/apply_schedule.h"

namespace sf::run {
namespace {

// GPUs that libshardforge-cuda finds; kUnavailable if this installation has no such library.
int cuda_devices() {
  void* library = dlopen("libshardforge-cuda.so", RTLD_NOW | RTLD_GLOBAL);
  SF_CHECK(
      library, Exit::kUnavailable,
      "engine.device = \"cuda\" needs libshardforge-cuda, which this build lacks; build where nvcc is found, or use "
      "engine.device = \"cpu\"");
  auto count_devices = reinterpret_cast<int (*)(int*)>(dlsym(library, "sf_cuda_device_count"));
  SF_CHECK(count_devices, Exit::kSoftware, "libshardforge-cuda has no sf_cuda_device_count");
  int count = 0;
  return count_devices(&count) == 0 ? count : 0;
}

}  // namespace

int guarded(app::Invocation& invocation, const std::function<int()>& body) {
  (void)invocation;
  try {
    tensor::install_allocator();
    return body();
  } catch (const c10::Error& error) {
    fail(Exit::kSoftware, "LibTorch: {}", error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    fail(Exit::kOs,
         "out of memory; see --plan for what this run needs, or lower capture.max_length and generate.batch");
  }
}

void apply_threads(app::Invocation& invocation, std::string_view key, int ranks_here) {
  tensor::set_threads(tool::apply_threads(invocation.settings(), key, ranks_here));
}

void apply_device(app::Invocation& invocation) {
  std::string device = invocation.settings().get_string("engine.device");
  if (device == "cuda") {
    int found = cuda_devices();
    SF_CHECK(found > 0, Exit::kUnavailable, "engine.device = \"cuda\", but no GPU was found on this host");
    fail(Exit::kUnavailable,
         "engine.device = \"cuda\": {} GPUs found, but training on them is not part of this release", found);
  }
  invocation.settings().applied("engine.device", device, "all tensors", "run");
}

}  // namespace sf::run
