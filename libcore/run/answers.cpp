// SPDX-License-Identifier: Apache-2.0
#include "run/answers.h"

#include <fcntl.h>
#include <fmt/format.h>
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

Json chat_row(const OpenTarget& target, const gen::GenerateOptions& options, const text::Prompt& prompt,
              const gen::Prompt& encoded, const gen::Completion& done) {
  Json messages = prompt.messages;
  messages.push(
      Json::object().set("role", "assistant").set("content", text_of(done, options, target.encoder.tokenizer())));
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

std::string key_of(const Json& row) {
  const Json* sample = row.find("sample");
  return sample ? fmt::format("{}/{}", row.at("id").as_string(), sample->as_int()) : row.at("id").as_string();
}

// What the chats depend on, as one digest.
std::string chat_job(const OpenTarget& target, const gen::GenerateOptions& o) {
  return sha256_hex(fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {} {}", target.checkpoint.identity(), target.encoder.tokenizer_digest(),
      target.encoder.template_digest(), name_of(target.compute), o.max_new_tokens, o.sampling.temperature,
      o.sampling.top_k, o.sampling.top_p, o.sampling.min_p, o.sampling.repetition_penalty, o.sampling.seed,
      fmt::join(o.stop_ids, ","), Json(Json::Array(o.stop_texts.begin(), o.stop_texts.end())).dump()));
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
      rows_[key_of(row)] = std::move(line);
    }
  }
  SF_CHECK(ftruncate(fd_.get(), static_cast<off_t>(whole)) == 0 && lseek(fd_.get(), 0, SEEK_END) >= 0, Exit::kIo,
           "cannot continue {}: {}", partial_.string(), errno_text(errno));
  if (whole == 0) write_all(fd_.get(), Json::object().set("job", job).dump() + "\n", partial_);
}

void AnswerFile::add(const Json& row) {
  std::string line = row.dump();
  write_all(fd_.get(), line + "\n", partial_);
  rows_[key_of(row)] = std::move(line);
}

void AnswerFile::publish(const std::vector<std::string>& order, const Json& first) {
  std::string text = first.is_null() ? "" : first.dump() + "\n";
  for (const std::string& key : order) text += rows_.at(key) + "\n";
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

void refuse_existing(const std::filesystem::path& out) {
  SF_CHECK(!std::filesystem::exists(out), Exit::kCantCreate, "{} exists; remove it or choose another -o", out.string());
}

int answer_into_file(app::Invocation& invocation, const AnswerTask& task, const std::filesystem::path& path,
                     AnswerRun& run) {
  invocation.stop();  // from here on a request to stop keeps the rows that are finished
  AnswerFile file(path, task.job, invocation.command_line());
  run.kept = file.size();
  std::vector<gen::Prompt> open;
  std::vector<size_t> index;
  for (size_t i = 0; i < task.keys.size(); ++i) {
    if (file.has(task.keys[i])) continue;
    open.push_back(task.prompts[i]);
    index.push_back(i);
  }
  int64_t tokens = 0;
  double start = monotonic_s();
  auto done = [&](const gen::Completion& completion) {
    file.add(task.row(index[completion.prompt], completion));
    tokens += std::ssize(completion.ids);
    invocation.progress("answers", static_cast<int64_t>(file.size()), std::ssize(task.keys),
                        fmt::format("{:.0f} tokens/s", static_cast<double>(tokens) / (monotonic_s() - start)));
  };
  if (!open.empty()) run.stats = task.generate(open, done);
  if (file.size() < task.keys.size()) {
    invocation.log(fmt::format("stopped; {} of {} answers are kept in {}", file.size(), task.keys.size(),
                               file.partial().string()));
    return static_cast<int>(Exit::kAgain);
  }
  file.publish(task.keys, task.first);
  invocation.log(run.summary());
  return 0;
}

AnswerTask chat_task(OpenTarget& target, const gen::GenerateOptions& options, const EncodedPrompts& prompts) {
  AnswerTask task{
      .keys = {}, .prompts = prompts.encoded, .row = {}, .generate = {}, .job = chat_job(target, options), .first = {}};
  for (const text::Prompt& prompt : prompts.prompts) task.keys.push_back(prompt.id);
  task.row = [&](size_t i, const gen::Completion& done) {
    return chat_row(target, options, prompts.prompts[i], prompts.encoded[i], done);
  };
  task.generate = [&](std::span<const gen::Prompt> open, const AnswerTask::Done& done) {
    return gen::generate(target.model, open, options, done);
  };
  return task;
}

}  // namespace sf::run
