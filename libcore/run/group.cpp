// SPDX-License-Identifier: Apache-2.0
// How the ranks of a command talk: from [comm] and how they were started, to a group.
#include "run/group.h"

#include <fmt/core.h>

#include "base/error.h"
#include "comm/agree.h"
#include "comm/network.h"
#include "comm/trace.h"
#include "run/device.h"
#include "tool/apply_training.h"

namespace sf::run {
namespace {

constexpr Seconds kOthersStart{600};  // a rank may still read what another has read

int supervisor_of(const app::Invocation& invocation) {
  return invocation.group_fd() < 0 ? 0 : shm::Region::map(invocation.group_fd())->control().supervisor.load();
}

std::unique_ptr<comm::Group> group_by_meeting(app::Invocation& invocation, const tool::CommSettings& comm) {
  const RankEnv& ranks = invocation.ranks();
  Deadline deadline = Deadline::after(Seconds(comm.join_deadline_s));
  comm::MeetingOptions options{.rank = ranks.rank,
                               .world = ranks.world,
                               .host = comm.host,
                               .port = comm.port,
                               .job = comm.job,
                               .interface = comm.interface,
                               .supervisor = supervisor_of(invocation)};
  std::shared_ptr<comm::Meeting> meeting = comm::Meeting::join(options, deadline);
  if (ranks.source == "torchrun")
    comm::check_local_ranks(*meeting, ranks.rank, ranks.world, ranks.local_rank, deadline);
  bool near = comm.group != "gloo" && comm::on_one_host(*meeting, ranks.rank, ranks.world, deadline);
  invocation.log(fmt::format("{} ranks of \"{}\" met at {} and talk by {}; rank {} is at {}", ranks.world, options.job,
                             meeting->place(), near ? "shm" : "gloo", ranks.rank, meeting->address()));
  SF_CHECK(near || comm.group != "shm", Exit::kConfig,
           "comm.group = \"shm\" ({}), but the {} ranks of {} are not all on one host; use \"auto\" or \"gloo\"",
           invocation.settings().origin("comm.group"), ranks.world, ranks.source);
  if (near) return comm::make_shm(*meeting, ranks.rank, ranks.world, deadline);
  std::shared_ptr<shm::Region> board = meeting->board();
  // The supervisor's board: it knows first when one of its ranks dies, and answers SIGQUIT from it.
  if (invocation.group_fd() >= 0) board = shm::Region::map(invocation.group_fd());
  return comm::make_gloo(std::move(meeting), std::move(board), ranks.rank, deadline);
}

std::unique_ptr<comm::Group> control_group(app::Invocation& invocation, const tool::CommSettings& comm) {
  const RankEnv& ranks = invocation.ranks();
  if (comm.meets) return group_by_meeting(invocation, comm);
  if (ranks.world == 1) return comm::make_single();
  return comm::make_shm(invocation.group_fd(), ranks.rank, ranks.world);
}

}  // namespace

std::unique_ptr<comm::Group> make_group(app::Invocation& invocation) {
  const RankEnv& ranks = invocation.ranks();
  const tool::CommSettings comm = tool::apply_comm(invocation.settings(), ranks, supervisor_of(invocation));
  std::unique_ptr<comm::Group> group = control_group(invocation, comm);
  if (comm.group == "nccl") group = over_nccl(invocation, std::move(group));
  if (ranks.world > 1) invocation.set_state_report([raw = group.get()] { return raw->state_text(); });
  return comm::traced(std::move(group));
}

void on_first_rank(comm::Group& group, std::string_view what, const std::function<void()>& take) {
  comm::agree(group, {what, Deadline::after(kOthersStart)}, [&] {
    if (group.rank() == 0) take();
  });
}

}  // namespace sf::run
