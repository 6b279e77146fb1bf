// SPDX-License-Identifier: Apache-2.0
// Frozen parameters of residency host (rl_lora 1.9): one read-only copy for all
// ranks of a host, in the type of their file. They are in no shard, group,
// gather, cast or checkpoint interval; an exchange or a segment reads the
// mapping.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/host_file.h"
#include "engine/store.h"
#include "plan/schedule.h"
#include "tensor/tensor.h"

namespace sf::engine {

struct HostOptions {
  std::map<std::string, HostSource> sources;  // by parameter; one without is filled by load()
  std::filesystem::path dir = "/tmp";         // where copies are
  double call_deadline_s = 120;
};

class HostTables {
 public:
  // Every rank calls it. Errors on every rank: those of HostFile.
  HostTables(const plan::Schedule& plan, comm::Group& group, const HostOptions& options);
  // A parameter that has no source: this rank's part of it. Nothing for any
  // other.
  void load(size_t parameter, const ReadInterval& read);
  // Every rank calls it, once all is loaded: from now on a write ends the
  // process (SIGSEGV).
  void seal();
  // The whole of it, in Held::compute; undefined if the host does not hold it.
  // Borrows this object's mapping.
  const at::Tensor& table(size_t parameter) const { return tables_[parameter]; }
  // "NAME: 1024.0 MiB F32, mapped where it lies, 4 ranks of this host" of each;
  // for the log.
  std::vector<std::string> lines() const;

 private:
  struct Kept {
    std::unique_ptr<HostFile> file;
    bool filled = false;  // from a source
  };
  comm::Call call(std::string_view tag) const;

  const plan::Schedule& plan_;
  comm::Group& group_;
  double call_deadline_s_;
  std::map<size_t, Kept> kept_;
  std::vector<at::Tensor> tables_;
  bool sealed_ = false;
};

}  // namespace sf::engine
