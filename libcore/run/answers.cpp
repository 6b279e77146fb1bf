// SPDX-License-Identifier: Apache-2.0
#include "run/answers.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/deadline.h"
#include "base/error.h"
#include "base/hash.h"
#include "text/tokenizer.h"

namespace sf::run {
namespace {

Json::Array to_json_array(std::span<const int32_t> ids) {
  Json::Array array;
  for (int32_t id : ids) array.emplace_back(int64_t{id});
  return array;
}

Json row_of(const OpenTarget& target, const text::Prompt& prompt, const gen::Prompt& encoded,
            const gen::Completion& done) {
  std::vector<int32_t> spoken = done.ids;
  if (done.finish == gen::Finish::kStop) spoken.pop_back();
  Json messages = prompt.messages;
  messages.push(
      Json::object().set("role", "assistant").set("content", target.encoder.tokenizer().decode(spoken, true)));
  std::vector<int32_t> ids = encoded.ids, mask(encoded.ids.size(), 0);
  ids.insert(ids.end(), done.ids.begin(), done.ids.end());
  mask.resize(ids.size(), 1);
  return Json::object()
      .set("id", prompt.id)
      .set("messages", std::move(messages))
      .set("input_ids", to_json_array(ids))
      .set("loss_mask", to_json_array(mask))
      .set("finish", std::string(gen::name_of(done.finish)));
}

std::string owner_text(const std::string& who) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return fmt::format("{} (pid {} on {})", who, getpid(), host);
}

// Of those who wrote the file, the last.
std::string owner_of(const std::filesystem::path& partial) {
  const std::string text = read_file(partial);
  constexpr std::string_view kBy = "{\"by\":";
  size_t at = text.rfind(kBy), end = text.find('\n', at);
  if (at == std::string::npos || end == std::string::npos) return "another run";
  return Json::parse(text.substr(at, end - at), partial.string()).get_string("by", "another run");
}

}  // namespace

std::string answer_job(const OpenTarget& target, const gen::GenerateOptions& o) {
  return sha256_hex(fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", target.checkpoint.identity(),
                                target.encoder.tokenizer_digest(), target.encoder.template_digest(),
                                name_of(target.compute), o.max_new_tokens, o.sampling.temperature, o.sampling.top_k,
                                o.sampling.top_p, o.sampling.min_p, o.sampling.repetition_penalty, o.sampling.seed,
                                o.stop_ids.size()));
}

AnswerFile::AnswerFile(std::filesystem::path file, const std::string& job, const std::string& who)
    : file_(std::move(file)), partial_(file_.string() + ".partial") {
  take_partial();
  const bool fresh = std::filesystem::file_size(partial_) == 0;
  try {
    refuse_existing(file_);  // another run may have published it since this one began
    read_back(job);
    write_all(fd_.get(), Json::object().set("by", owner_text(who)).dump() + "\n", partial_);
  } catch (...) {
    if (fresh) ::unlink(partial_.c_str());
    throw;
  }
}

AnswerFile::~AnswerFile() {
  if (fd_.valid() && rows_.empty()) ::unlink(partial_.c_str());
}

void AnswerFile::take_partial() {
  for (;;) {
    fd_ = UniqueFd(::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    SF_CHECK(fd_.valid(), exit_of_errno(errno, Exit::kCantCreate), "cannot create {}: {}", partial_.string(),
             errno_text(errno));
    struct stat ours {
    }, now{};
    SF_CHECK(fstat(fd_.get(), &ours) == 0 && S_ISREG(ours.st_mode), Exit::kCantCreate, "{} is not a regular file",
             partial_.string());
    SF_CHECK(flock(fd_.get(), LOCK_EX | LOCK_NB) == 0, Exit::kCantCreate,
             "{} is being written by {}; choose another -o, or wait until that run ends", file_.string(),
             owner_of(partial_));
    // The previous owner may have published and removed it between our open and our lock.
    if (stat(partial_.c_str(), &now) == 0 && ours.st_ino == now.st_ino) return;
  }
}

void AnswerFile::read_back(const std::string& job) {
  std::string text = read_file(partial_);
  size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  size_t at = 0;
  for (bool first = true; at < whole; first = false) {
    size_t end = text.find('\n', at);
    std::string line = text.substr(at, end - at);
    at = end + 1;
    Json row = Json::parse(line, partial_.string());
    if (first) {
      SF_CHECK(row.get_string("job", "") == job, Exit::kProtocol,
               "{} was begun with another target, template or sampling; remove it or choose another -o",
               partial_.string());
    } else if (!row.contains("by")) {
      rows_[row.at("id").as_string()] = std::move(line);
    }
  }
  SF_CHECK(ftruncate(fd_.get(), static_cast<off_t>(whole)) == 0 && lseek(fd_.get(), 0, SEEK_END) >= 0, Exit::kIo,
           "cannot continue {}: {}", partial_.string(), errno_text(errno));
  if (whole == 0) write_all(fd_.get(), Json::object().set("job", job).dump() + "\n", partial_);
}

void AnswerFile::add(const std::string& id, const Json& row) {
  std::string line = row.dump();
  write_all(fd_.get(), line + "\n", partial_);
  rows_[id] = std::move(line);
}

void AnswerFile::publish(const std::vector<text::Prompt>& order) {
  std::string text;
  for (const text::Prompt& prompt : order) text += rows_.at(prompt.id) + "\n";
  write_atomic(file_, text);
  std::filesystem::remove(partial_);
  fd_ = UniqueFd();
}

double AnswerRun::tokens_per_s() const {
  double seconds = stats.prefill_s + stats.decode_s;
  return seconds > 0 ? static_cast<double>(stats.new_tokens) / seconds : 0;
}

std::string AnswerRun::summary() const {
  return fmt::format("{} answers ({} found already), {} new tokens, {} target forwards, {:.1f} tokens/s", stats.prompts,
                     kept, stats.new_tokens, stats.target_forwards, tokens_per_s());
}

Json AnswerRun::to_json() const {
  return Json::object()
      .set("prompts", stats.prompts)
      .set("kept", static_cast<int64_t>(kept))
      .set("new_tokens", stats.new_tokens)
      .set("prompt_tokens", stats.prompt_tokens)
      .set("target_forwards", stats.target_forwards)
      .set("prefill_s", stats.prefill_s)
      .set("decode_s", stats.decode_s)
      .set("tokens_per_s", tokens_per_s());
}

AnswerRun answer_all(app::Invocation& invocation, OpenTarget& target, const gen::GenerateOptions& options,
                     const EncodedPrompts& prompts, AnswerFile& file) {
  AnswerRun run{.kept = file.size()};
  std::vector<gen::Prompt> open;
  std::vector<size_t> index;
  for (size_t i = 0; i < prompts.prompts.size(); ++i) {
    if (file.has(prompts.prompts[i].id)) continue;
    open.push_back(prompts.encoded[i]);
    index.push_back(i);
  }
  int64_t tokens = 0;
  double start = monotonic_s();
  auto done = [&](const gen::Completion& completion) {
    size_t i = index[completion.prompt];
    file.add(prompts.prompts[i].id, row_of(target, prompts.prompts[i], prompts.encoded[i], completion));
    tokens += static_cast<int64_t>(completion.ids.size());
    invocation.progress("answers", static_cast<int64_t>(file.size()), static_cast<int64_t>(prompts.prompts.size()),
                        fmt::format("{:.0f} tokens/s", static_cast<double>(tokens) / (monotonic_s() - start)));
  };
  if (!open.empty()) run.stats = gen::generate(target.model, open, options, done);
  run.stopped = file.size() < prompts.prompts.size();
  return run;
}

void refuse_existing(const std::filesystem::path& out) {
  SF_CHECK(!std::filesystem::exists(out), Exit::kCantCreate, "{} exists; remove it or choose another -o", out.string());
}

int answer_into_file(app::Invocation& invocation, OpenTarget& target, const gen::GenerateOptions& options,
                     const EncodedPrompts& prompts) {
  std::filesystem::path out = invocation.get("output");
  invocation.stop();  // from here on a request to stop keeps the rows that are finished
  AnswerFile file(out, answer_job(target, options), invocation.command_line());
  AnswerRun run = answer_all(invocation, target, options, prompts, file);
  if (run.stopped) {
    invocation.log(fmt::format("stopped; {} of {} answers are kept in {}", file.size(), prompts.prompts.size(),
                               file.partial().string()));
    return static_cast<int>(Exit::kAgain);
  }
  file.publish(prompts.prompts);
  invocation.log(run.summary());
  invocation.result(invocation.json_output() ? run.to_json().set("path", out.string()).dump() : out.string());
  return 0;
}

}  // namespace sf::run
