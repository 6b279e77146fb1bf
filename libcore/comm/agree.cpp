// SPDX-License-Identifier: Apache-2.0
#include "comm/agree.h"

#include <array>
#include <optional>

#include "base/echoed.h"
#include "base/fault.h"

namespace sf::comm {
namespace {

struct Told {
  std::array<char, 1016> text{};
  int64_t code = 0;
};

}  // namespace

void agree(Group& group, const Call& call, const std::function<void()>& body) {
  Told mine;
  std::exception_ptr failure;
  std::string whole;
  auto tell = [&](Exit code, std::string_view text) {
    failure = std::current_exception();
    whole = text;
    mine.code = static_cast<int64_t>(code);
    text.copy(mine.text.data(), mine.text.size() - 1);
  };
  try {
    body();
  } catch (const Error& error) {
    tell(error.code(), error.what());
  } catch (const std::exception& error) {
    tell(Exit::kSoftware, error.what());
  }
  if (failure && group.world() == 1) std::rethrow_exception(failure);
  std::vector<Told> all(static_cast<size_t>(group.world()));
  std::vector<size_t> sizes(all.size(), sizeof(Told));
  group.all_gather(std::as_bytes(std::span(&mine, 1)), sizes, std::as_writable_bytes(std::span(all)), call);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].code == 0) continue;
    const auto code = static_cast<Exit>(all[r].code);
    const bool ours = static_cast<int>(r) == group.rank();
    std::string text = fmt::format("rank {} in {}: {}", r, call.tag, ours ? whole : all[r].text.data());
    if (ours || fault("comm.no_echo")) throw Error(code, std::move(text));
    throw Echoed(code, std::move(text));
  }
}

}  // namespace sf::comm
