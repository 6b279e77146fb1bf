// SPDX-License-Identifier: Apache-2.0
#include "run/loading.h"

#include <fmt/format.h>

#include "base/deadline.h"
#include "base/echoed.h"
#include "comm/agree.h"

namespace sf::run {
Loading::Loading(app::Invocation& invocation, comm::Group& group, double deadline_s)
    : invocation_(invocation), group_(group), deadline_s_(deadline_s) {}

void Loading::step(std::string_view name, const std::function<void()>& body) {
  double start = monotonic_s();
  std::string tag = fmt::format("loading step {}", name);
  comm::agree(group_, {tag, Deadline::after(Seconds(deadline_s_))}, body);
  line_ += fmt::format("{}{} {:.2f} s", line_.empty() ? "" : ", ", name, monotonic_s() - start);
}

void Loading::compare_files(const std::vector<std::pair<std::string, std::string>>& identities) {
  step("files", [] {});
  for (const auto& [what, identity] : identities) {
    constexpr size_t kWidth = 64;
    std::string mine = identity.substr(0, kWidth), all(kWidth * static_cast<size_t>(group_.world()), ' ');
    mine.resize(kWidth, ' ');
    std::vector<size_t> sizes(static_cast<size_t>(group_.world()), kWidth);
    group_.all_gather(std::as_bytes(std::span(mine)), sizes, std::as_writable_bytes(std::span(all)),
                      {"compare files", Deadline::after(Seconds(deadline_s_))});
    for (int r = 1; r < group_.world(); ++r) {
      std::string_view first = std::string_view(all).substr(0, kWidth);
      std::string_view other = std::string_view(all).substr(kWidth * static_cast<size_t>(r), kWidth);
      if (first == other) continue;
      const std::string why = fmt::format(
          "ranks see different files: the {} of rank 0 has identity {:.16}, that of rank {} {:.16}; every rank needs "
          "the same",
          what, first, r, other);
      if (group_.rank() == 0) throw Error(Exit::kData, why);
      throw Echoed(Exit::kData, why);
    }
  }
}

void Loading::finish() const {
  invocation_.log("loaded: " + line_);
}

}  // namespace sf::run
