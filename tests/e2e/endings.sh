#!/usr/bin/env bash
# Every ending of a stream: who is told what, which status, and that the same line resumes.
. "$(dirname "$0")/lib.sh"
tiny_setup
sed -i 's/epochs = 4/epochs = 400/' run.toml
pipe() {  # pipe RUN: capture | train, statuses into cap.rc and train.rc
  rm -f cap.rc train.rc
  { rc=0; features --rejected "$work/void" 2>cap.err || rc=$?; echo $rc >cap.rc; } | {
    rc=0
    sf-train eagle3 -c run.toml --draft draft0 --from - --ranks 2 -o "$work/$1" --resume auto >train.out 2>train.err || rc=$?
    echo $rc >train.rc
  } &
  job=$!
}
started() { for _ in $(seq 200); do [ -s "$1/metrics.jsonl" ] && return; sleep 0.05; done; cat cap.err train.err; die "no step in 10 s"; }
ended() { wait $job || true; }
status() { [ "$(cat $1.rc)" = "$2" ] || { cat cap.err train.err; die "$3: $1 ended with $(cat $1.rc), wanted $2"; }; }

pipe a; started a
pkill -TERM -o -f "^sf-train eagle3 .*-o $work/a" ; ended
status train 75 "TERM on the trainer"; status cap 0 "TERM on the trainer"
pipe a; for _ in $(seq 100); do grep -q 'resumed from' train.err && break; sleep 0.05; done; sleep 0.5
pkill -KILL -f "^sf-capture features .*--rejected $work" ; ended
status train 69 "capture killed"; grep -q "capture\|producer" train.err || die "the trainer does not say who died"
[ -e a/latest ] || die "nothing published after the producer died"
pipe b; started b
pkill -KILL -f "^sf-train eagle3 .*-o $work/b" ; ended
status cap 69 "trainer killed"
sf-shard verify a/latest >/dev/null 2>err || { cat err; die "checkpoint after a kill does not verify"; }

# A capture behind a handle file, and one trainer of it. Slurm's request to stop is TERM, CONT, TERM at once.
behind_file=(sf-capture features -c run.toml --target target --draft draft0 --data chats.jsonl --rejected "$work/void"
  --handle-file "$work/c.handle")
beside() { # beside WORDS...
  "${behind_file[@]}" --set "stream.stop_deadline_s=${patience:-60}" >/dev/null 2>cap.err & cap=$!
  sf-train eagle3 -c run.toml --draft draft0 --from "$work/c.handle" -o "$work/c" --resume auto "$@" >train.out 2>train.err & train=$!
}
both_ended() { # statuses into cap.rc and train.rc
  rc=0; wait $cap || rc=$?; echo $rc >cap.rc
  rc=0; wait $train || rc=$?; echo $rc >train.rc
}
slurm_stops() { kill -TERM "$1"; kill -CONT "$1"; kill -TERM "$1"; }
beside; started c
slurm_stops $cap; both_ended
status cap 0 "TERM on a capture behind a handle file"; status train 75 "TERM on its capture"
grep -q "every trainer rank said BYE" cap.err || { cat cap.err; die "the capture that was stopped does not say how it ended"; }
grep -q "was told to stop" train.err || { cat train.err; die "the trainer does not say that its capture was stopped"; }
[ ! -e c.handle ] && [ -e c/latest ] || die "TERM on a capture behind a handle file: no checkpoint, or the handle is left"
# A trainer that does not answer is not waited for longer than stream.stop_deadline_s; it goes on with the next capture.
patience=1 beside; for _ in $(seq 200); do grep -q 'resumed from' train.err && break; sleep 0.05; done; sleep 0.3
kill -STOP $train; sleep 0.2; slurm_stops $cap
rc=0; wait $cap || rc=$?
echo $rc >cap.rc; status cap 69 "TERM on the capture of a trainer that is suspended"
grep -q "no BYE came before the deadline" cap.err || { cat cap.err; die "the capture does not say what it waited for"; }
"${behind_file[@]}" >/dev/null 2>>cap.err & cap=$!
for _ in $(seq 200); do [ -e c.handle ] && break; sleep 0.05; done
kill -CONT $train
for _ in $(seq 200); do grep -q "took over" train.err && break; sleep 0.05; done
grep -q "took over" train.err || { cat cap.err train.err; die "the next capture is not found"; }
slurm_stops $train; both_ended
status cap 0 "TERM on the trainer behind a handle file"; status train 75 "TERM on the trainer behind a handle file"
# Whatever was stopped, every position was trained once: the bits of a run from files.
features -o feats >/dev/null 2>err || { cat err; die features; }
last=$(($(basename "$(readlink c/latest)" | tr -dc 0-9) + 4))
beside --set training.max_steps=$last; both_ended
status cap 0 "the end of the data"; status train 0 "the end of the data"
sf-train eagle3 -c run.toml --draft draft0 --from feats --set training.max_steps=$last -o calm >/dev/null 2>err || { cat err; die calm; }
cmp <(losses calm) <(losses c) && [ "$(digest calm/latest)" = "$(digest c/latest)" ] || die "stopped three times, the run has other bits"

# kill -9 of the supervisor while its ranks start: none outlives it, or keeps the run's directory.
for ms in 004 006 008 010 030; do
  sf-train sft -c run.toml --target target --data chats.jsonl --ranks 2 -o "$work/early" 2>/dev/null >/dev/null &
  victim=$!
  sleep 0.$ms
  kill -KILL $victim
  { wait $victim || true; } 2>/dev/null
  for _ in $(seq 100); do pgrep -f "^sf-train sft .*-o $work/early" >/dev/null || break; sleep 0.05; done
  ! pgrep -af "^sf-train sft .*-o $work/early" || die "a rank outlives its supervisor, killed after 0.$ms s"
done
