#!/usr/bin/env bash
# TERM at any moment publishes and exits 75; the same line goes on to the bits of an uninterrupted run (W = 2; 2 -> 1).
. "$(dirname "$0")/lib.sh"
tiny_setup
sed -i 's/epochs = 4/epochs = 40/' run.toml
features -o feats >/dev/null 2>err || { cat err; die features; }
train=(sf-train eagle3 -c run.toml --draft draft0 --from feats --resume auto)
"${train[@]}" --ranks 2 -o whole >/dev/null 2>err || { cat err; die whole; }
interrupt() {  # interrupt RUN RANKS STEPS: start, TERM once STEPS more steps are recorded; prints the status
  local rc=0 have=0 pid
  [ ! -e "$1/metrics.jsonl" ] || have=$(wc -l <"$1/metrics.jsonl")
  "${train[@]}" --ranks "$2" -o "$1" >/dev/null 2>err.$1 &
  pid=$!
  for _ in $(seq 600); do
    [ "$(cat "$1/metrics.jsonl" 2>/dev/null | wc -l)" -ge $((have + $3)) ] && break
    sleep 0.02
  done
  kill -TERM $pid 2>/dev/null || true
  wait $pid || rc=$?
  echo $rc
}
stopped=0
for steps in 3 11 24; do
  rc=$(interrupt cut 2 $steps)
  case $rc in
    75) stopped=$((stopped + 1)) ;;
    0) ;;
    *) cat err.cut; die "TERM after $steps steps: status $rc" ;;
  esac
done
[ $stopped -ge 1 ] || die "no TERM met the run in the middle"
"${train[@]}" --ranks 1 -o cut >/dev/null 2>err || { cat err; die "resume on one rank"; }
cmp <(losses whole) <(losses cut) || die "losses of the resumed run differ"
[ "$(digest whole/latest)" = "$(digest cut/latest)" ] || die "weights of the resumed run differ"
# A rank that is killed while ranks write checkpoints ends them all with 69 and leaves one that is whole; the next run
# finds nothing in its way.
struck=0
for victim in 0 1 0 1; do
  "${train[@]}" --ranks 2 --set training.checkpoint_every=1 -o killed >/dev/null 2>err.killed &
  pid=$!
  before=$(readlink killed/latest || true)
  for _ in $(seq 600); do [ "$(readlink killed/latest || true)" != "$before" ] && break; sleep 0.01; done
  sleep 0.0$((RANDOM % 9))
  kill -KILL "$(pgrep -P $pid | sed -n $((victim + 1))p)" 2>/dev/null || true
  rc=0; wait $pid || rc=$?
  [ $rc = 69 ] && struck=$((struck + 1))
  [ $rc = 69 ] || [ $rc = 0 ] || { cat err.killed; die "rank $victim killed: status $rc"; }
  sf-shard verify killed/latest >/dev/null || die "rank $victim killed: latest is not whole"
done
[ $struck -ge 2 ] || die "no kill met the run in the middle"
"${train[@]}" --ranks 2 -o killed >/dev/null 2>err || { cat err; die "resume after kills"; }
[ "$(digest whole/latest)" = "$(digest killed/latest)" ] || die "weights of the run whose ranks were killed differ"
[ "$(find killed -name '.step-*' | wc -l)" = 0 ] || die "something of a killed save is left"
# A second trainer in the same directory is refused, and says who owns it.
"${train[@]}" --ranks 1 -o busy >/dev/null 2>err &
pid=$!
for _ in $(seq 100); do [ -e busy/.lock ] && break; sleep 0.05; done
expect 73 sf-train eagle3 -c run.toml --draft draft0 --from feats -o busy
says "in use" "pid"
kill -TERM $pid; wait $pid || true
# A finished run continued elsewhere has nothing left to do, and is whole there.
sf-train eagle3 -c run.toml --draft draft0 --from feats --resume whole/latest -o moved >/dev/null 2>err || { cat err; die "resume into another directory"; }
sf-shard verify moved/latest >/dev/null || die "moved/latest is not whole"
[ "$(digest whole/latest)" = "$(digest moved/latest)" ] || die "weights of the moved run differ"
