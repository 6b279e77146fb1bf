// SPDX-License-Identifier: Apache-2.0
// Writes the specification of a draft of blocks (eagle_dflash 2.1): what DFlash and those built on it have in common.
// Private to this room.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "arch/dflash.h"

namespace sf::arch {

class BlockSpec {
 public:
  BlockSpec(const Dflash& draft, std::string family);

  // A segment begins; what follows is added to it.
  void open(std::string name, std::vector<std::string> reads, std::vector<std::string> writes);
  void add(std::string name, Shape shape, std::string init, bool trainable = true);
  void matrix(const std::string& name, int64_t out, int64_t in);  // its product counts
  void linear(const std::string& module, int64_t out, int64_t in, bool bias);

  void blocks();   // integers from the micro-batch
  void context();  // captured states -> what every layer reads
  // Rows of the target's embedding by id, frozen.
  void embed(const std::string& segment, const std::string& ids, const std::string& rows);
  // Every layer; `more` adds to one what its family has beside DFlash's, under the given prefix.
  void layers(const std::function<void(const std::string& prefix)>& more = {});
  std::string last() const;  // the last layer's boundary
  // The target's head in the open segment; with `whole`, the segment is given all of it.
  void head(bool tied, bool whole);

  ModelSpec spec();  // with the rotary buffer

 private:
  void layer(int64_t i);
  Table& table(const std::string& parameter);
  const Dflash& d_;
  ModelSpec spec_;
};

}  // namespace sf::arch
