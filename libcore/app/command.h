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
  std::string name;   // without dashes: "target"
  std::string value;  // placeholder, e.g. "DIR"; empty: a switch
  std::string help;   // one line
  bool required = false;
  std::string setting;  // settings key it sets ("draft.seed"), or empty; a switch sets it to true
  char letter = 0;      // short form, only c o q v n h V
  bool repeatable = false;
};

class Invocation;

struct Verb {
  std::string name;
  std::string purpose;                // one line
  std::vector<std::string> examples;  // at least two, each runnable as it stands inside man/examples
  std::vector<Option> options;        // besides the common ones
  std::vector<std::string> settings;  // sections of settings it reads ("training", "stream"); others are refused (64)
  bool takes_positional = false;      // e.g. `sf-eval report RUN`: as many as positional_help names, all required
  std::string positional_help;        // "RUN  directory of the run", "A B  what to compare": names, two spaces, meaning
  std::vector<std::string> positional_choices = {};     // the words the first may be; empty: any
  std::function<int(Invocation&)> run;                  // or, for verbs that compute:
  std::function<int(Invocation&)> plan;                 // --plan of those, without LibTorch
  std::function<std::optional<int>(Invocation&)> done;  // before LibTorch is opened: the status, if nothing is to do
  std::string tensor_entry;  // extern "C" int NAME(sf::app::Invocation*) of libshardforge-tensor.so, by dlopen
  bool ranks = false;        // accepts --ranks N: the supervisor forks before anything else happens
};

struct Command {
  std::string name, purpose;
  std::vector<Verb> verbs;
};

// Why the run should end; looked at between steps only.
// kFinishStep: TERM, HUP, INT, USR1: finish the step, publish, exit 75. It stays. kPublishAndGoOn: USR2; told once.
// kAbort is an answer ranks may agree on; a process asked to stop twice (more than 2 s apart) dies by the signal at
// once.
enum class Stop { kNone, kFinishStep, kPublishAndGoOn, kAbort };

// Everything a verb may know about how it was called. The only door to argv, environment, signals and terminal.
class Invocation {
 public:
  virtual ~Invocation() = default;
  virtual const std::string& command_line() const = 0;  // shell-quoted, for logs and manifests
  virtual bool has(std::string_view option) const = 0;
  virtual std::string get(std::string_view option) const = 0;  // kUsage naming the option if it was not given
  virtual std::string get(std::string_view option, std::string_view otherwise) const = 0;
  virtual std::vector<std::string> all(std::string_view option) const = 0;  // of a repeatable option; may be empty
  virtual const std::vector<std::string>& positional() const = 0;
  virtual config::Settings& settings() = 0;
  virtual bool plan_only() const = 0;    // --plan: resolve, check, predict; touch nothing
  virtual bool json_output() const = 0;  // --format json
  virtual const RankEnv& ranks() const = 0;
  virtual int group_fd() const = 0;  // memory file inherited from the supervisor, or -1
  // A descriptor whose end of file is the end of whoever feeds this command: stdin, on every rank of --ranks N (only
  // rank 0 may read from it).
  virtual int life_fd() const = 0;
  virtual void result(std::string_view line) = 0;  // stdout of rank 0: one line and newline, flushed; kIo if it fails
  virtual void log(std::string_view line) = 0;     // stderr, with "sf-train[rank]: " in front
  virtual void warn(std::string_view line) = 0;
  // Progress of a long stage on rank 0: overprints on a terminal, else a plain line at most every 30 s. total 0:
  // unknown.
  virtual void progress(std::string_view stage, int64_t done, int64_t total, std::string_view detail) = 0;
  virtual Stop stop() = 0;              // what signals have asked for so far
  virtual int stop_signal() const = 0;  // number of the last such signal, 0 if none
  // What SIGQUIT adds to the log ("waits in all_gather layers.3 since 41 s"): called from another thread, must not
  // block.
  virtual void set_state_report(std::function<std::string()> report) = 0;
  virtual bool stdin_is_terminal() const = 0;
};

// Ends a verb's set-up: logs the "applied ..." lines of settings that were given (with -v of all), as a warning where
// one applied to nothing; then refuses settings that were given but that nobody applied (kConfig, each with its
// origin).
void settle_settings(Invocation& invocation);

// Release, commit, compiler, library versions and features of this build, as --build-info prints them.
Json build_info();

// The whole life of a command: parse, set up, run, translate errors to exit statuses, close stdout safely.
int run_command(int argc, char** argv, const Command& command);

}  // namespace sf::app
