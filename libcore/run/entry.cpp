// SPDX-License-Identifier: Apache-2.0
#include "run/entry.h"

#include <c10/util/Exception.h>
#include <fmt/core.h>

#include "base/error.h"
#include "tensor/memory.h"
#include "tensor/threads.h"
#include "tool/apply_schedule.h"

namespace sf::run {
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

}  // namespace sf::run
