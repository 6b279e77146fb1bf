// SPDX-License-Identifier: Apache-2.0
#include "stream/roster.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "stream/fields.h"

namespace sf::stream {
namespace {

constexpr size_t kMostText = 256;

}  // namespace

Json Hello::to_json() const {
  Json json = Json::object();
  json.set("wire", wire).set("code", code).set("token", token).set("id", id);
  json.set("rank", rank).set("world", world).set("name", name).set("credit_bytes", credit_bytes);
  return json;
}

Hello Hello::from_json(const Json& json) {
  Hello hello;
  hello.wire = whole_field(json, "wire");
  hello.code = text_field(json, "code", kMostText);
  hello.token = text_field(json, "token", kMostText);
  hello.id = text_field(json, "id", kMostText);
  hello.name = text_field(json, "name", kMostText);
  hello.rank = whole_field(json, "rank");
  hello.world = whole_field(json, "world");
  hello.credit_bytes = whole_field(json, "credit_bytes");
  SF_CHECK(hello.world >= 1 && hello.world <= kMaxWorld && hello.rank >= 0 && hello.rank < hello.world, Exit::kData,
           "hello: rank {} of {} is not one", hello.rank, hello.world);
  SF_CHECK(hello.credit_bytes >= 0, Exit::kData, "hello: credit of {} bytes", hello.credit_bytes);
  return hello;
}

int64_t Roster::count(State state) const {
  return std::count_if(members_.begin(), members_.end(), [&](const auto& item) { return item.second.state == state; });
}

std::optional<std::string> Roster::join(const std::string& peer, const Hello& hello, double now,
                                        std::vector<std::string>& replaced) {
  for (const auto& [id, member] : members_) {
    if (member.state != State::kLive || id == peer) continue;
    if (member.rank == hello.rank) return fmt::format("rank {} is already served to {}", hello.rank, member.name);
    if (hello.world != world_) {
      return fmt::format("this stream serves {} ranks ({} among them), found a rank of {}", world_, member.name,
                         hello.world);
    }
  }
  // A run of another size starts afresh; one of the same size replaces the rank that left.
  for (auto it = members_.begin(); it != members_.end();) {
    bool stale = it->first != peer && (it->second.rank == hello.rank || hello.world != world_);
    if (stale) replaced.push_back(it->first);
    it = stale ? members_.erase(it) : std::next(it);
  }
  world_ = hello.world;
  members_[peer] = {hello.rank, hello.name, now, State::kLive};
  return std::nullopt;
}

Roster::Member* Roster::find(const std::string& peer) {
  auto found = members_.find(peer);
  return found == members_.end() ? nullptr : &found->second;
}

void Roster::leave(const std::string& peer, State how, double now) {
  if (Member* member = find(peer)) {
    member->state = how;
    last_left_ = now;
  }
}

std::string Roster::missing() const {
  std::string text;
  for (const auto& [id, member] : members_) {
    if (member.state == State::kBye) continue;
    text += fmt::format("{}rank {} ({})", text.empty() ? "" : ", ", member.rank, member.name);
  }
  return text;
}

}  // namespace sf::stream
