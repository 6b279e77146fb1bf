// SPDX-License-Identifier: Apache-2.0
// Scores from a program of the user's: a JSON line in for each response, a JSON line out, in any order.
//   in   {"n":7,"id":"q1","sample":3,"question":"...","answer":"42","response":"...","tokens":24,"finish":"stop"}
//   out  {"n":7,"score":0.5}     what else it says is kept beside the response
// The program lives on from step to step. One that ends, or that says nothing for too long, is begun again and asked
// for what it still owes; an answer that is none is an error. Nothing of it outlives the trainer, however that ends.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace sf::tool {

struct RewardOptions {
  std::string command;     // for /bin/sh; its messages go where ours go
  double deadline_s = 60;  // without an answer
  int64_t restarts = 2;    // for one set of responses
  std::function<void(const std::string&)> warn = [](const std::string&) {};
  std::function<bool()> cancelled = [] { return false; };
};

struct RewardAsk {
  std::string id, question, gold, response;
  int64_t sample = 0, tokens = 0;
  bool cut = false;  // by the length limit
};

class RewardProgram {
 public:
  // Begins nothing yet. The process must ignore SIGPIPE.
  explicit RewardProgram(RewardOptions options);
  RewardProgram(RewardProgram&&) = delete;
  ~RewardProgram();  // its input ends; one that does not leave within a second is killed, with what it began

  // What the program said of each, objects with a "score" within rl::kMostScore. kUnavailable: restarts did not help;
  // kData naming the line: it is no answer to what was asked. Fewer than were asked if cancelled.
  std::vector<Json> judge(std::span<const RewardAsk> asks);

 private:
  class Exchange;
  void begin();
  std::string end(bool at_once);  // how the program ended
  RewardOptions options_;
  pid_t pid_ = -1;
  UniqueFd in_, out_;  // ours: writes to it, reads from it
};

}  // namespace sf::tool
