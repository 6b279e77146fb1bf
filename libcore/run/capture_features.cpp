// SPDX-License-Identifier: Apache-2.0
// sf-capture features: chats -> the target's states, by position: streamed to trainers, or as a directory.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "base/error.h"
#include "comm/agree.h"
#include "run/capture_job.h"
#include "run/entry.h"
#include "stream/feature_dir.h"
#include "tool/chats.h"
#include "tool/outputs.h"
#include "tool/synthetic.h"
#include "tool/target_settings.h"

namespace sf::run {
namespace {

namespace fs = std::filesystem;

// Rank 0 has looked over what an earlier run left before others look at it, and nobody writes before all have looked.
std::unique_ptr<stream::FeatureWriter> open_writer(app::Invocation& invocation, const CaptureJob& job) {
  const fs::path dir = invocation.get("output");
  const comm::Call call = job.passes().call("rows that are there");
  std::unique_ptr<stream::FeatureWriter> writer;
  auto open = [&] {
    writer = std::make_unique<stream::FeatureWriter>(dir, job.contract, job.group->rank(), invocation.command_line(),
                                                     stream::Others::kDone);
  };
  on_first_rank(*job.group, "features " + dir.string(), open);
  comm::agree(*job.group, call, [&] {
    if (!job.first()) open();
  });
  std::array<int64_t, 1> there{static_cast<int64_t>(writer->rows())};
  job.group->all_reduce_sum(there, call);
  SF_CHECK(there[0] == static_cast<int64_t>(writer->rows()) * job.group->world(), Exit::kCantCreate,
           "{} is not the same directory on every rank; choose an -o on a file system that they share", dir.string());
  return writer;
}

bool any_is_stopped(app::Invocation& invocation, const Passes& passes) {
  std::array<int64_t, 1> asked{invocation.stop() != app::Stop::kNone};
  passes.group().all_reduce_sum(asked, passes.call("a request to stop"));
  return asked[0] > 0;
}

bool nobody_reads(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISCHR(info.st_mode);
}

int capture_features(app::Invocation& invocation) {
  const bool to_dir = invocation.has("output"), first = invocation.ranks().rank == 0;
  if (invocation.has("synthetic")) return tool::synthetic_features(invocation);
  SF_CHECK(!invocation.has("n"), Exit::kUsage, "--n counts rows of --synthetic; give both");
  SF_CHECK(invocation.has("data") != invocation.has("import"), Exit::kUsage,
           "give the rows once: --data FILE, or --import DIR of features that another tool captured");
  if (to_dir) tool::refuse_existing(invocation.get("output"));
  SF_CHECK(to_dir || invocation.has("handle-file") || !first || !nobody_reads(STDOUT_FILENO), Exit::kUsage,
           "the stream's handle goes to standard output, which is a terminal or a device that no trainer reads; pipe "
           "into sf-train, or give --handle-file FILE or -o DIR");
  CaptureJob job = open_capture(invocation);
  if (!job.imported)
    on_first_rank(*job.group, "rejected rows",
                  [&] { tool::write_rejected(invocation, job.rows, tool::rejected_file(invocation)); });
  return to_dir ? capture_to_directory(invocation, job) : capture_to_stream(invocation, job);
}

}  // namespace

int capture_to_directory(app::Invocation& invocation, CaptureJob& job) {
  const fs::path dir = invocation.get("output");
  tool::apply_no_stream(invocation.settings());
  check_first_rows(invocation, job, {});
  invocation.stop();  // from here on a request to stop keeps the rows that are finished
  const std::unique_ptr<stream::FeatureWriter> writer = open_writer(invocation, job);
  Passes passes = job.passes();
  const auto total = std::ssize(job.rows);
  const std::vector<uint64_t> positions = stream::first_positions(job.contract.rows, job.contract.order_seed);
  std::vector<const text::ChatRow*> left;
  for (const text::ChatRow& row : job.rows)
    if (!writer->has(row.row)) left.push_back(&row);
  for (std::span<const text::ChatRow* const> rest = left; !rest.empty();) {
    if (any_is_stopped(invocation, passes)) {
      writer->close();
      invocation.log(fmt::format("stopped; {} of {} rows are kept", total - std::ssize(rest), total));
      return static_cast<int>(Exit::kAgain);
    }
    rest = rest.subspan(passes.run(rest, [&](size_t, stream::Sample sample) {
      sample.position = positions[sample.row];
      writer->add(sample);
    }));
    invocation.progress("features", total - std::ssize(rest), total,
                        fmt::format("{:.0f} tokens/s", passes.tokens_per_s()));
  }
  comm::agree(*job.group, passes.call("closed shards"), [&] { writer->close(); });
  on_first_rank(*job.group, "features " + dir.string(), [&] { writer->publish(); });
  Json json = Json::object().set("rows", total).set("voids", job.account.rejected).set("tokens", passes.tokens());
  json.set("tokens_per_s", passes.tokens_per_s()).set("text", job.account.to_json()).set("path", dir.string());
  tell_memory(invocation, job, &json);
  invocation.log(fmt::format("{} rows, {} void, {} tokens at {:.1f} tokens/s", total, job.account.rejected,
                             passes.tokens(), passes.tokens_per_s()));
  if (job.first()) invocation.result(invocation.json_output() ? json.dump() : dir.string());
  return 0;
}

}  // namespace sf::run

extern "C" int sf_capture_features(sf::app::Invocation* invocation) {
  return sf::run::guarded(*invocation, [&] { return sf::run::capture_features(*invocation); });
}
