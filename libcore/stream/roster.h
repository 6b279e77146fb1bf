// SPDX-License-Identifier: Apache-2.0
// Who trains from this producer: ranks that joined, said BYE, fell silent or came back. Pure; times are passed in.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace sf::stream {

inline constexpr int64_t kMaxWorld = 4096;

// What a trainer rank says about itself in kHello.
struct Hello {
  int64_t wire = 0, rank = 0, world = 1, credit_bytes = 0;
  std::string code, token, id, name;

  Json to_json() const;
  static Hello from_json(const Json& json);  // kData
};

class Roster {
 public:
  enum class State { kLive, kBye, kSilent };
  struct Member {
    int64_t rank = 0;
    std::string name;  // "host:pid"
    double heard = 0;  // seconds, the caller's clock
    State state = State::kLive;
  };

  // Why this rank may not join; nullopt: it may. Replaces members that are no longer live: their ids go to `replaced`.
  std::optional<std::string> join(const std::string& peer, const Hello& hello, double now,
                                  std::vector<std::string>& replaced);
  Member* find(const std::string& peer);
  const std::map<std::string, Member>& members() const { return members_; }
  void leave(const std::string& peer, State how, double now);

  bool empty() const { return members_.empty(); }
  bool any_live() const { return count(State::kLive) > 0; }
  bool any_bye() const { return count(State::kBye) > 0; }
  bool all_bye() const { return world_ > 0 && count(State::kBye) == world_; }
  double last_left() const { return last_left_; }  // when the last member stopped being live
  std::string missing() const;                     // "rank 0 (host:12), rank 1 (host:13)": those that went without BYE

 private:
  int64_t count(State state) const;

  std::map<std::string, Member> members_;
  int64_t world_ = 0;
  double last_left_ = 0;
};

}  // namespace sf::stream
