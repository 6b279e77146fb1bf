// SPDX-License-Identifier: Apache-2.0
// The life of a command, from argv to exit status.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <new>
#include <system_error>

#include "app/call.h"
#include "app/cli.h"
#include "app/help.h"
#include "app/ranks.h"
#include "app/supervisor.h"
#include "app/verdict.h"
#include "base/echoed.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/shm_control.h"
#include "base/utf8.h"
#include "config/origins.h"

extern char** environ;

namespace sf {
const char* version();
}

namespace sf::app {
namespace {

constexpr int kMostRanks = 1024;

using Environment = std::map<std::string, std::string>;

Environment copy_of_environment() {
  Environment copy;
  for (char** entry = environ; *entry; ++entry) {
    std::string_view text = *entry;
    size_t equals = text.find('=');
    if (equals != std::string_view::npos) copy.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return copy;
}

// Descriptors 0 to 2 must exist, or the next file opened would become stdout. A closed one is replaced such that using
// it fails (stdout is opened read-only: a result then ends in EBADF).
void hold_standard_descriptors() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0)
      fail(Exit::kOs, "cannot open /dev/null: {}", errno_text(errno));
}

void print(std::string_view text) {
  write_all(STDOUT_FILENO, text, "standard output");
}

// A full disk may show only here.
int close_stdout(int status, const std::string& name) {
  bool flushed = std::fflush(stdout) == 0;
  int number = errno;
  if (close(STDOUT_FILENO) != 0 && flushed && errno != EBADF) {
    flushed = false;
    number = errno;
  }
  if (flushed || status != 0) return status;
  std::fprintf(stderr, "%s: error: standard output: %s\n", name.c_str(), errno_text(number).c_str());
  return static_cast<int>(Exit::kIo);
}

// Runs `act`; says every error once, on stderr, and turns it into an exit status.
template <typename Act>
int guarded(Act&& act, const std::function<void(std::string_view)>& say, const std::string& help_command) {
  auto told = [&](Exit code, std::string_view message) {
    say(message);
    if (code == Exit::kUsage && !help_command.empty())
      std::fprintf(stderr, "Try '%s' for more information.\n", help_command.c_str());
    return static_cast<int>(code);
  };
  try {
    return act();
  } catch (const Misuse& misuse) {
    return told(Exit::kUsage, misuse.message);
  } catch (const Echoed& error) {
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    return told(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return told(Exit::kOs, "out of memory");
  } catch (const std::filesystem::filesystem_error& error) {
    return told(exit_of_errno(error.code().value(), Exit::kIo),
                fmt::format("{}: {}", error.path1().string(), error.code().message()));
  } catch (const std::system_error& error) {
    return told(exit_of_errno(error.code().value(), Exit::kOs), error.what());
  } catch (const std::exception& error) {
    return told(Exit::kSoftware, fmt::format("unexpected: {}", error.what()));
  } catch (...) {
    return told(Exit::kSoftware, "unexpected exception of unknown type");
  }
}

config::Settings load_settings(const Verb& verb, const Parsed& parsed) {
  config::Settings settings(verb.settings);
  if (auto files = parsed.values.find("config"); files != parsed.values.end())
    for (const std::string& file : files->second) settings.load_file(file);
  if (auto assignments = parsed.values.find("set"); assignments != parsed.values.end())
    for (const std::string& assignment : assignments->second) settings.set(assignment, "--set");
  for (const Option& option : verb.options) {
    if (option.setting.empty() || !parsed.has(option.name)) continue;
    std::string value = option.value.empty() ? "true" : parsed.last(option.name, "");
    if (option.repeatable) value = fmt::format("{}", fmt::join(parsed.values.at(option.name), ","));
    settings.set(option.setting + "=" + value, "--" + option.name);
  }
  return settings;
}

int ranks_asked(const Parsed& parsed) {
  return parsed.has("ranks") ? ranks_from_text(parsed.last("ranks", ""), kMostRanks) : 0;
}

std::string env_or(const Environment& environment, const char* name, const char* otherwise) {
  auto found = environment.find(name);
  return found == environment.end() ? otherwise : found->second;
}

void read_manners(CallSetup& setup, const Environment& environment) {
  std::string level = env_or(environment, "SF_LOG", "");
  SF_CHECK(level.empty() || level == "quiet" || level == "normal" || level == "verbose", Exit::kUsage,
           "SF_LOG: wanted quiet, normal or verbose, found '{}'", level);
  setup.quiet = setup.parsed.has("quiet") || (level == "quiet" && !setup.parsed.has("verbose"));
  setup.verbose = setup.parsed.has("verbose") || level == "verbose";
  const bool able = env_or(environment, "TERM", "dumb") != "dumb";
  bool terminal = able && isatty(STDERR_FILENO) == 1;
  std::string progress = setup.parsed.last("progress", "auto");
  setup.progress = progress != "never";
  setup.paint = progress == "always" || (progress == "auto" && terminal);
  std::string colour = env_or(environment, "SF_COLOR", env_or(environment, "NO_COLOR", "").empty() ? "auto" : "never");
  SF_CHECK(colour == "auto" || colour == "always" || colour == "never", Exit::kUsage,
           "SF_COLOR: wanted auto, always or never, found '{}'", colour);
  setup.colour = colour == "always" || (colour == "auto" && terminal);
  setup.result_colour = colour == "always" || (colour == "auto" && able && isatty(STDOUT_FILENO) == 1);
}

std::filesystem::path tensor_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&run_command), &info) && info.dli_fname) {
    std::filesystem::path beside = std::filesystem::path(info.dli_fname).parent_path() / "libshardforge-tensor.so";
    std::error_code ignored;
    if (std::filesystem::exists(beside, ignored)) return beside;
  }
  return "libshardforge-tensor.so";  // the loader's own search path
}

int enter_tensor(const std::string& entry, Invocation& invocation) {
  std::filesystem::path path = tensor_library();
  // OpenMP's default spins for milliseconds at the end of every operator, on a core that another rank needs.
  setenv("GOMP_SPINCOUNT", "0", 0);
  // Never closed: LibTorch's registrations do not survive it. Global: its own plug-ins look symbols up.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  SF_CHECK(library, Exit::kUnavailable, "cannot open the computing library: {}", dlerror());
  using Entry = int (*)(Invocation*);
  auto run = reinterpret_cast<Entry>(dlsym(library, entry.c_str()));
  SF_CHECK(run, Exit::kSoftware, "{} has no entry point {}", path.string(), entry);
  return run(&invocation);
}

// LibTorch is opened only for what is not there already.
int answer_of(const Verb& verb, Invocation& invocation) {
  const auto& here = invocation.plan_only() && verb.plan ? verb.plan : verb.run;
  if (here) return here(invocation);
  const std::optional<int> done = verb.done && !fault("app.skip_done") ? verb.done(invocation) : std::nullopt;
  return done ? *done : enter_tensor(verb.tensor_entry, invocation);
}

int answer_or_verdict(const Verb& verb, Call& call) {
  try {
    return answer_of(verb, call);
  } catch (const Verdict&) {
    call.finish();
    throw;
  } catch (Error& error) {
    const std::string origin =
        error.code() == Exit::kConfig ? config::origin_of_named(call.settings(), error.what()) : "";
    if (!origin.empty()) error.add_context(origin);
    throw;
  }
}

// Of several ranks with one error, one tells it; and an end that its own rank told is not told again.
bool is_ours_to_tell(const Call& call, std::string_view error) {
  if (call.group_fd() < 0) return true;
  return shm::may_tell(*shm::Region::map(call.group_fd()), call.ranks().rank, error);
}

int call_verb(CallSetup setup) {
  const std::string name = setup.command->name;
  const Verb& verb = *setup.parsed.verb;
  const std::string help_command = fmt::format("{} {} --help", name, verb.name);
  if (setup.ranks.rank != 0) point_at_null({STDIN_FILENO, STDOUT_FILENO});
  Call call(std::move(setup));
  auto say = [&](std::string_view message) {
    if (is_ours_to_tell(call, message)) call.terminal().error(message);
  };
  int status = guarded(
      [&] {
        call.listen();
        if (!verb.tensor_entry.empty() || call.has("verbose")) call.log_first_lines();
        int answer = answer_or_verdict(verb, call);
        if (answer < 128 && answer != static_cast<int>(Exit::kAgain)) call.finish();  // a stopped verb has no result
        return answer;
      },
      say, call.ranks().rank == 0 ? help_command : "");
  return close_stdout(status, name);
}

RankEnv world_of(const Verb& verb, const Parsed& parsed, const Environment& environment) {
  RankEnv world = rank_env(environment);
  int asked = verb.ranks ? ranks_asked(parsed) : 0;
  SF_CHECK(world.world == 1 || verb.ranks, Exit::kUsage,
           "{} runs as one process, but the environment ({}) speaks of {} ranks: start it once", verb.name,
           world.source, world.world);
  SF_CHECK(world.source == "single" || asked == 0 || asked == world.world, Exit::kUsage,
           "--ranks {} contradicts the environment ({}), which speaks of {} rank{}", asked, world.source, world.world,
           world.world == 1 ? "" : "s");
  if (world.world == 1 && asked > 1) {
    world.world = world.local_world = asked;
    world.source = "supervisor";
  }
  return world;
}

// Before the work: the file of a verb's result can be made.
void check_result_file(const std::filesystem::path& out) {
  refuse_to_replace(out);
  std::error_code ignored;
  const std::filesystem::path dir = out.has_parent_path() ? out.parent_path() : std::filesystem::path(".");
  SF_CHECK(out.has_filename() && !std::filesystem::is_directory(out, ignored), Exit::kCantCreate,
           "--output {} is a directory; wanted the name of a file", out.string());
  SF_CHECK(std::filesystem::is_directory(dir, ignored) && access(dir.c_str(), W_OK) == 0, Exit::kCantCreate,
           "cannot create {}: {} is no directory that may be written to", out.string(), dir.string());
}

// What is read must not be what is written, and no path or value may be empty.
void check_values(const Parsed& parsed) {
  std::vector<std::pair<std::string, std::string>> given;
  const std::vector<Option> options = options_of(*parsed.verb);
  for (const auto& [name, values] : parsed.values)
    if (const Option* option = find_option(options, name); option && !option->value.empty())
      for (const std::string& value : values) given.emplace_back("--" + name, value);
  for (const std::string& value : parsed.positional) given.emplace_back(positional_parts(*parsed.verb).first, value);
  const std::string out = parsed.last("output", "");
  for (const auto& [name, value] : given) {
    SF_CHECK(!value.empty(), Exit::kUsage, "{}: wanted a value, found an empty one", name);
    std::error_code ignored;
    SF_CHECK(name == "--output" || !std::filesystem::is_regular_file(value, ignored) ||
                 !std::filesystem::equivalent(value, out, ignored),
             Exit::kCantCreate, "--output {} is the file given as {}; choose another -o", out, name);
  }
  if (!out.empty() && !find_option(parsed.verb->options, "output")) check_result_file(out);
}

int run_verb(const Command& command, Parsed parsed, const std::vector<std::string>& arguments) {
  const Verb& verb = *parsed.verb;
  signal(SIGXFSZ, SIG_IGN);  // before the ranks' memory is made: a file-size limit is an error, told like a full disk
  Environment environment = copy_of_environment();
  CallSetup setup{.command = &command, .parsed = std::move(parsed), .command_line = shell_quoted(arguments)};
  check_values(setup.parsed);
  read_manners(setup, environment);
  setup.settings = load_settings(verb, setup.parsed);
  if (setup.parsed.act == Parsed::Act::kPrintConfig) {
    bool json = setup.parsed.last("format", "text") == "json";
    print(json ? setup.settings.resolved().dump(2) + "\n" : setup.settings.resolved_toml());
    return 0;
  }
  setup.ranks = world_of(verb, setup.parsed, environment);
  if (setup.ranks.source != "supervisor" || setup.parsed.has("plan")) return call_verb(std::move(setup));
  // Nothing of this process may be shared with the ranks but descriptors: no thread, library or socket exists yet.
  Terminal terminal({.prefix = command.name + ": ", .quiet = setup.quiet, .colour = setup.colour});
  UniqueFd life(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));  // ranks lose stdin, but see the end of who feeds them
  auto child = [&](int rank, int control_fd) {
    setup.ranks.rank = setup.ranks.local_rank = rank;
    setup.group_fd = control_fd;
    if (rank != 0) setup.life_fd = life.get();
    return call_verb(setup);
  };
  return supervise(setup.ranks.world, child, {.say = [&](std::string_view line) { terminal.warn(line); }});
}

int act(const Command& command, const std::vector<std::string>& arguments) {
  Parsed parsed = parse(command, {arguments.begin() + 1, arguments.end()});
  bool json = parsed.last("format", "text") == "json";
  switch (parsed.act) {
    case Parsed::Act::kHelp:
      if (json)
        print(help_json(command, parsed.verb).dump(2) + "\n");
      else
        print(parsed.verb ? verb_help(command, *parsed.verb) : command_help(command));
      return 0;
    case Parsed::Act::kVersion:
      print(json ? Json::object().set("command", command.name).set("version", version()).dump() + "\n"
                 : fmt::format("{} (ShardForge) {}\n", command.name, version()));
      return 0;
    case Parsed::Act::kBuildInfo:
      print(build_info().dump(2) + "\n");
      return 0;
    case Parsed::Act::kCompletion:
      print(completion(command, parsed.last("completion", "")));
      return 0;
    case Parsed::Act::kPrintConfig:
    case Parsed::Act::kRun:
      break;
  }
  return run_verb(command, std::move(parsed), arguments);
}

}  // namespace

namespace {

// One key, one place: a second one is another room that took the key for its own.
void refuse_second_owners(const std::vector<config::Echo>& said) {
  for (size_t i = 1; i < said.size(); ++i)
    SF_CHECK(said[i - 1].key != said[i].key, Exit::kSoftware, "one setting has two places: {}; {}", said[i - 1].line,
             said[i].line);
}

// A file serves many commands, so a key of it may be idle in one of them, and is said to be. A key typed for this very
// command is a wish; only the reference's own switch, which may find no table, is taken without one.
bool asked_for_nothing(const config::Settings& settings, const config::Echo& said) {
  return said.idle && settings.origin(said.key).starts_with("--") && said.key != "training.shard_frozen_tables";
}

}  // namespace

void settle_settings(Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  refuse_second_owners(settings.echo());
  std::string left;
  for (const config::Echo& said : settings.echo(!invocation.has("verbose"))) {
    if (asked_for_nothing(settings, said))
      left += fmt::format("{}{}", left.empty() ? "" : ", ", said.line);
    else
      said.idle ? invocation.warn(said.line) : invocation.log(said.line);
  }
  if (fault("app.skip_settle")) return;
  for (const std::string& key : settings.unapplied())
    SF_CHECK(!key.starts_with("planned."), Exit::kConfig,
             "{} ({}) is work to come: a plan reads it, no run does it yet; remove it", key, settings.origin(key));
  for (const std::string& key : settings.unapplied())
    left += fmt::format("{}{} ({})", left.empty() ? "" : ", ", key, settings.origin(key));
  SF_CHECK(left.empty(), Exit::kConfig, "set, but used by nothing in this run: {}; remove it", left);
}

int run_command(int argc, char** argv, const Command& command) {
  std::vector<std::string> arguments(argv, argv + argc);
  auto say = [&](std::string_view message) {
    std::fprintf(stderr, "%s: error: %s\n", command.name.c_str(), printable(message).c_str());
  };
  std::string help_command = command.name + " --help";
  if (arguments.size() > 1)
    for (const Verb& verb : command.verbs)
      if (verb.name == arguments[1]) help_command = fmt::format("{} {} --help", command.name, verb.name);
  int status = guarded(
      [&] {
        hold_standard_descriptors();
        signal(SIGPIPE, SIG_IGN);
        return act(command, arguments);
      },
      say, help_command);
  return close_stdout(status, command.name);
}

}  // namespace sf::app
