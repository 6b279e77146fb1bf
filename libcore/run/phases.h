// SPDX-License-Identifier: Apache-2.0
// Where the time and the memory of a step go: each moment belongs to one phase.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace sf::run {

class Phases {
 public:
  // `began`: monotonic seconds at which the first phase did.
  Phases(std::string first, double began);
  // The phase before ends, and this one goes on from there. Of the same name: nothing happens.
  void enter(const std::string& name);

  struct Spent {
    double seconds = 0;
    uint64_t peak_bytes = 0;  // the most that tensors of this process held in it; 0 unless our allocator counts
  };
  // Of the phases since the last call, the one at work included.
  std::map<std::string, Spent> take();
  uint64_t peak_bytes() const { return peak_bytes_; }  // of all phases so far

 private:
  void note();
  std::string name_;
  double since_;
  std::map<std::string, Spent> spent_;
  uint64_t peak_bytes_ = 0;
};

}  // namespace sf::run
