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
