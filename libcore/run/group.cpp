// SPDX-License-Identifier: Apache-2.0
// How the ranks of a command talk: from [comm] and how they were started, to a group.
#include "run/group.h"

#include <fmt/core.h>

#include "base/error.h"
#include "comm/network.h"
#include "comm/trace.h"
#include "run/device.h"

namespace sf::run {
namespace {

constexpr Seconds kOthersStart{600};  // a rank may still read what another has read

// Where ranks without a shared parent meet; a supervisor's meet on loopback, told apart by its number.
comm::MeetingOptions meeting_options(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  const RankEnv& ranks = invocation.ranks();
  comm::MeetingOptions options{.rank = ranks.rank,
                               .world = ranks.world,
                               .host = ranks.meet_host,
                               .port = ranks.meet_port,
                               .job = ranks.job,
                               .interface = settings.get_string("comm.interface")};
  if (ranks.source == "supervisor" || ranks.source == "single") {
    if (invocation.group_fd() >= 0)
      options.supervisor = shm::Region::map(invocation.group_fd())->control().supervisor.load();
    options.host = "127.0.0.1";
    options.port = 20000 + options.supervisor % 12000;
    options.job = fmt::format("supervisor {}", options.supervisor);
  }
  std::string meet = settings.get_string("comm.meet");
  if (!meet.empty()) options.host = meet;
  SF_CHECK(!options.host.empty() && !options.job.empty(), Exit::kUsage,
           "{} ranks started by {}, but nothing says where rank 0 is: set MASTER_ADDR and MASTER_PORT{}", ranks.world,
           ranks.source, ranks.source == "slurm" ? ", or comm.meet" : "");
  return options;
}

std::unique_ptr<comm::Group> group_by_meeting(app::Invocation& invocation, const std::string& kind) {
  const RankEnv& ranks = invocation.ranks();
  Deadline deadline = Deadline::after(Seconds(invocation.settings().get_float("comm.join_deadline_s")));
  comm::MeetingOptions options = meeting_options(invocation);
  std::shared_ptr<comm::Meeting> meeting = comm::Meeting::join(options, deadline);
  invocation.log(fmt::format("{} ranks of \"{}\" met at {}; rank {} is at {}", ranks.world, options.job,
                             meeting->place(), ranks.rank, meeting->address()));
  bool near = kind != "gloo" && comm::on_one_host(*meeting, ranks.rank, ranks.world, deadline);
  SF_CHECK(near || kind != "shm", Exit::kConfig,
           "comm.group = \"shm\" ({}), but the {} ranks of {} are not all on one host; use \"auto\" or \"gloo\"",
           invocation.settings().origin("comm.group"), ranks.world, ranks.source);
  if (near) return comm::make_shm(*meeting, ranks.rank, ranks.world, deadline);
  std::shared_ptr<shm::Region> board = meeting->board();
  // The supervisor's board: it knows first when one of its ranks dies, and answers SIGQUIT from it.
  if (invocation.group_fd() >= 0) board = shm::Region::map(invocation.group_fd());
  return comm::make_gloo(std::move(meeting), std::move(board), ranks.rank, deadline);
}

std::unique_ptr<comm::Group> choose_group(app::Invocation& invocation, const std::string& kind) {
  const RankEnv& ranks = invocation.ranks();
  config::Settings& settings = invocation.settings();
  SF_CHECK(kind != "single" || ranks.world == 1, Exit::kConfig, "comm.group = \"single\" ({}), but {} started {} ranks",
           settings.origin("comm.group"), ranks.source, ranks.world);
  if (kind == "nccl") return over_nccl(invocation, choose_group(invocation, "auto"));
  if (ranks.world == 1 && kind != "gloo") return comm::make_single();
  if (kind == "gloo" || invocation.group_fd() < 0) return group_by_meeting(invocation, kind);
  return comm::make_shm(invocation.group_fd(), ranks.rank, ranks.world);
}

}  // namespace

std::unique_ptr<comm::Group> make_group(app::Invocation& invocation) {
  config::Settings& settings = invocation.settings();
  std::unique_ptr<comm::Group> group = choose_group(invocation, settings.get_string("comm.group"));
  const RankEnv& ranks = invocation.ranks();
  bool network = group->kind() == "gloo", met = network || (group->kind() == "shm" && invocation.group_fd() < 0);
  settings.applied("comm.group", std::string(group->kind()), fmt::format("{} ranks", ranks.world), "comm");
  std::string connections = fmt::format("{} meetings", met ? 1 : 0);
  settings.applied("comm.interface", settings.get_string("comm.interface"), connections, "comm");
  settings.applied("comm.meet", settings.get_string("comm.meet"), connections, "comm");
  settings.applied("comm.join_deadline_s", fmt::format("{}", settings.get_float("comm.join_deadline_s")), connections,
                   "comm");
  if (ranks.world > 1) invocation.set_state_report([raw = group.get()] { return raw->state_text(); });
  return comm::traced(std::move(group));
}

void on_first_rank(comm::Group& group, std::string_view what, const std::function<void()>& take) {
  std::optional<Error> failure;
  if (group.rank() == 0) {
    try {
      take();
    } catch (const Error& caught) {
      failure = caught;
    }
  }
  int64_t code = failure ? static_cast<int64_t>(failure->code()) : 0;
  group.all_reduce_sum(std::span(&code, 1), {what, Deadline::after(kOthersStart)});
  if (failure) throw *failure;
  if (code) fail(static_cast<Exit>(code), "rank 0 could not take {}", what);
}

}  // namespace sf::run
