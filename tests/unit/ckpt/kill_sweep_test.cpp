// SPDX-License-Identifier: Apache-2.0
// A publisher is killed at every system call that changes the file system. A traced child stops before each of them;
// the n-th run ends there by SIGKILL, and what is left on disk must be the old checkpoint or the new one.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "ckpt/checkpoint.h"
#include "scratch.h"

namespace sf::ckpt {
namespace {

namespace fs = std::filesystem;

#ifdef __x86_64__
bool changes_files(uint64_t call) {
  static const std::set<uint64_t> kCalls = {SYS_write,     SYS_pwrite64,  SYS_copy_file_range, SYS_fsync,
                                            SYS_fdatasync, SYS_rename,    SYS_renameat,        SYS_renameat2,
                                            SYS_mkdir,     SYS_mkdirat,   SYS_symlink,         SYS_symlinkat,
                                            SYS_unlink,    SYS_unlinkat,  SYS_rmdir,           SYS_openat,
                                            SYS_open,      SYS_ftruncate, SYS_sync_file_range, SYS_fallocate};
  return kCalls.contains(call);
}

enum class Torn { kBefore, kHalf };  // killed before the call, or after a write of half its bytes

// Runs `body` in a child and kills it at its n-th such call. Returns false if the child ended before.
bool killed_at(int n, Torn torn, const std::function<void()>& body) {
  pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    body();
    _exit(0);
  }
  int status = 0, seen = 0;
  waitpid(pid, &status, 0);
  ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  for (bool entering = true;; entering = !entering) {
    ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr);
    waitpid(pid, &status, 0);
    if (!WIFSTOPPED(status)) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
      return false;
    }
    user_regs_struct registers{};
    ptrace(PTRACE_GETREGS, pid, nullptr, &registers);
    if (!entering || !changes_files(registers.orig_rax) || ++seen < n) continue;
    if (torn == Torn::kHalf && (registers.orig_rax == SYS_write || registers.orig_rax == SYS_pwrite64)) {
      registers.rdx /= 2;
      ptrace(PTRACE_SETREGS, pid, nullptr, &registers);
      ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr);
      waitpid(pid, &status, 0);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return true;
  }
}

bool can_trace() {
  return killed_at(1 << 20, Torn::kBefore, [] {}) == false;
}

// What stands in the files of a step: by one process (sf-init), or in the parts of two ranks (a trainer).
void write_alone(Publisher& publisher, const HostTensor& weight, const Json& config, const Manifest& manifest) {
  write_safetensors(publisher.dir() / "optimizer.safetensors", {{"w.exp_avg", weight.view()}});
  publisher.commit({{"w", weight.view()}}, config, manifest);
}

void write_in_parts(Publisher& publisher, const HostTensor& weight, const Json& config, const Manifest& manifest) {
  publisher.reserve({{"w", Dtype::kF32, weight.shape()}}, config);
  reserve_safetensors(publisher.dir() / "optimizer.safetensors", {{"w.exp_avg", Dtype::kF32, weight.shape()}});
  Parts parts;
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    SafetensorsFile open = SafetensorsFile::open(publisher.dir() / name);
    const TensorInfo& info = open.tensors()[0];
    for (uint64_t begin : {uint64_t{0}, uint64_t{1000}}) {
      uint64_t end = begin == 0 ? 1000 : info.bytes();
      SafetensorsFiller filler(open.path());
      filler.write(info, begin, weight.view().span().subspan(begin, end - begin));
      filler.sync();
      parts[info.name].push_back({begin, end, xxh3_64(weight.view().span().subspan(begin, end - begin)), 0});
    }
  }
  publisher.commit_reserved(parts, manifest);
}

using WriteStep = decltype(&write_alone);

// A step of a run: a model, moments, a side file; then `latest` moves and the oldest goes.
void save(const fs::path& run, int step, WriteStep write) {
  HostTensor weight = ramp(Dtype::kF32, {64, 16}, step);
  std::string name = fmt::format("step-{}", step);
  Publisher publisher(run / name);
  write_atomic(publisher.dir() / "tokenizer.json", "{}");
  Manifest manifest;
  manifest.step = step;
  write(publisher, weight, Json::object().set("model_type", "llama"), manifest);
  point_latest(run, name);
  std::error_code ignored;
  fs::remove_all(run / fmt::format("step-{}", step - 1), ignored);
}

void sweep(WriteStep write) {
  if (!can_trace()) GTEST_SKIP() << "this system does not let a process trace its child: not run";
  int points = 0, newer = 0;
  for (Torn torn : {Torn::kBefore, Torn::kHalf}) {
    for (int n = 1;; ++n) {
      Scratch scratch;
      save(scratch.path(), 1, write);
      if (!killed_at(n, torn, [&] { save(scratch.path(), 2, write); })) break;
      ++points;
      std::optional<fs::path> found = latest_checkpoint(scratch.path());
      ASSERT_TRUE(found) << "killed at call " << n << ": nothing valid is left";
      ASSERT_TRUE(Checkpoint::open(*found).verify().empty());
      // What `latest` names is whole too, and the next save finds nothing in its way.
      ASSERT_TRUE(Checkpoint::open(scratch / "latest").verify().empty()) << "killed at call " << n;
      newer += found->filename() == "step-2";
      if (*found == scratch / "step-1") {
        save(scratch.path(), 2, write);
        for (const auto& entry : fs::directory_iterator(scratch.path()))
          ASSERT_FALSE(entry.path().filename().string().starts_with(".step")) << "killed at call " << n;
      }
    }
  }
  testing::Test::RecordProperty("points", points);
  std::printf("killed at %d points, 0 checkpoints lost; %d found the new one\n", points, newer);
  EXPECT_GT(points, 60);
  EXPECT_GT(newer, 0);
}

TEST(KillSweep, AtEveryCallThatChangesFilesLeavesAValidCheckpoint) {
  sweep(write_alone);
}

TEST(KillSweep, OfACheckpointInPartsLeavesAValidOne) {
  sweep(write_in_parts);
}
#endif

}  // namespace
}  // namespace sf::ckpt
