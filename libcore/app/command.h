// SPDX-License-Identifier: Apache-2.0
// A command is a table: verbs, options, examples. Help, completion, man-page checks and parsing all read this table.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/rank_env.h"
#include "config/settings.h"

namespace sf::app {

struct Option {
  std::string name;     // without dashes: "target"
  std::string value;    // placeholder, e.g. "DIR"; empty: a switch
  std::string help;     // one line
  bool required = false;
  std::string setting;  // settings key it sets ("data.path"), or empty
  char letter = 0;      // short form, only c o q v n h V
};

class Invocation;

struct Verb {
  std::string name;
  std::string purpose;                 // one line
  std::vector<std::string> examples;   // at least two, each runnable as it stands inside man/examples
  std::vector<Option> options;         // besides the common ones
  std::vector<std::string> settings;   // sections of settings it reads ("training", "stream"); others are refused (64)
  bool takes_positional = false;       // e.g. `sf-eval report RUN`
  std::string positional_help;
  std::function<int(Invocation&)> run; // or, for verbs that compute:
  std::string tensor_entry;            // extern "C" int NAME(sf::app::Invocation*) of libshardforge-tensor.so, by dlopen
  bool ranks = false;                  // accepts --ranks N: the supervisor forks before anything else happens
};

struct Command {
  std::string name, purpose;
  std::vector<Verb> verbs;
};

// Why the run should end; looked at between steps only.
enum class Stop { kNone, kFinishStep, kPublishAndGoOn, kAbort };

// Everything a verb may know about how it was called. The only door to argv, environment, signals and terminal.
class Invocation {
 public:
  virtual ~Invocation() = default;
  virtual const std::string& command_line() const = 0;        // shell-quoted, for logs and manifests
  virtual bool has(std::string_view option) const = 0;
  virtual std::string get(std::string_view option) const = 0; // kUsage naming the option if it was not given
  virtual std::string get(std::string_view option, std::string_view otherwise) const = 0;
  virtual const std::vector<std::string>& positional() const = 0;
  virtual config::Settings& settings() = 0;
  virtual bool plan_only() const = 0;                          // --plan: resolve, check, predict; touch nothing
  virtual bool json_output() const = 0;                        // --format json
  virtual const RankEnv& ranks() const = 0;
  virtual int group_fd() const = 0;                            // memory file inherited from the supervisor, or -1
  virtual void result(std::string_view line) = 0;              // stdout of rank 0: one line and newline, flushed; kIo if it fails
  virtual void log(std::string_view line) = 0;                 // stderr, with "sf-train[rank]: " in front
  virtual void warn(std::string_view line) = 0;
  // Progress of a long stage on rank 0: overprints on a terminal, else a plain line at most every 30 s. total 0: unknown.
  virtual void progress(std::string_view stage, int64_t done, int64_t total, std::string_view detail) = 0;
  virtual Stop stop() = 0;                                     // what signals have asked for so far
  virtual int stop_signal() const = 0;                         // number of the last such signal, 0 if none
  virtual bool stdin_is_terminal() const = 0;
  virtual bool stdout_is_terminal() const = 0;
};

// The whole life of a command: parse, set up, run, translate errors to exit statuses, close stdout safely.
int run_command(int argc, char** argv, const Command& command);

}  // namespace sf::app
