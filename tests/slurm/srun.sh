#!/usr/bin/env bash
# Two nodes, two ranks: the bits of --ranks 2; a killed rank ends the other with 69; a capture of two tasks is that of one
# process; the examples resume and fill an array.
. "$(dirname "$0")/lib.sh"
export MASTER_ADDR=127.0.0.1 # the nodes' names have no address: both are this host
tiny_setup
features -o features >/dev/null 2>err || { cat err; die features; }
train() { sf-train eagle3 -c run.toml --draft draft0 --from features "$@"; }
step() { srun -N2 -n2 sf-train eagle3 -c run.toml --draft draft0 --from features "$@"; }
same() { # same RUN: losses and weights of --ranks 2
  losses "$1" >losses.other
  cmp losses.ranks losses.other || die "losses of $1 differ from those of --ranks 2"
  [ "$(digest ranks/latest)" = "$(digest "$1/latest")" ] || die "weights of $1 differ from those of --ranks 2"
}

expect 0 train --ranks 2 -o ranks
losses ranks >losses.ranks
expect 0 step --set 'comm.group="gloo"' -o gloo
says 'met at 127.0.0.1:' 'applied comm.group=gloo to 2 ranks by comm'
same gloo
# Both nodes are one host, and auto sees it: no parent forked these ranks, yet they share memory.
expect 0 step -v -o auto
says 'and talk by shm'
same auto

# A killed rank: the other names it and ends with 69; srun reports 137.
cat >task.sh <<'T'
sf-train eagle3 -c run.toml --draft draft0 --from features --set 'comm.group="gloo"' --set training.epochs=100000 \
  --set training.checkpoint_every=5 -o killed &
echo $! >pid.$SLURM_PROCID
wait $!
rc=$?
echo $rc >status.$SLURM_PROCID
exit $rc
T
srun -N2 -n2 bash task.sh >out 2>err &
step=$!
for _ in {1..300}; do [ -e killed/latest ] && break; sleep 0.1; done
[ -e killed/latest ] || { cat err; die "no checkpoint after 30 s"; }
kill -KILL "$(cat pid.1)"
got=0
wait $step || got=$?
[ "$got" = 137 ] || { cat err; die "srun ended with $got, not 137"; }
[ "$(cat status.0 status.1 | xargs)" = "69 137" ] || { cat err; die "ranks ended with $(cat status.0 status.1 | xargs)"; }
says "rank 1 (pid $(cat pid.1)) died" 'rank 0 waits in'

# A capture of two tasks, each with its part of the target: the rows and the stream of one process.
capture() { srun -N2 -n2 sf-capture features -c run.toml --target target --draft draft0 --data chats.jsonl --set "comm.group=\"$1\"" "${@:2}"; }
rows_of() { sf-capture inspect "$1" --rows | grep '^position'; }
for group in gloo auto; do
  expect 0 capture $group -v -o "by-$group"
  says "self-test: 2 rows, " 'memory of rank 1, MiB: at rest'
  [ "$(ls "by-$group"/rows-*.frames | wc -l)" = 2 ] || die "two tasks did not both write"
  diff <(rows_of features) <(rows_of "by-$group") >diff.out || { head -n 4 diff.out; die "two tasks capture other rows ($group)"; }
done
capture gloo --handle-file two.handle >/dev/null 2>cap.err & two=$!
expect 0 sf-train eagle3 -c run.toml --draft draft0 --from two.handle --ranks 2 -o streamed
got=0
wait $two || got=$?
[ "$got" = 0 ] && grep -q "every trainer rank said BYE" cap.err || { cat cap.err; die "the capture of two tasks ended with $got"; }
same streamed

# The example: its first start is killed, its second goes on and ends well.
cp "$here/../../man/examples/slurm/train.sbatch" .
sed -i 's/^checkpoint_every.*//; s/^epochs = .*/epochs = 40\ncheckpoint_every = 2/' run.toml
sbatch --wait -o job.log train.sbatch >/dev/null 2>&1 &
job=$!
for _ in {1..300}; do [ -e run/latest ] && break; sleep 0.1; done
victim=$(pgrep -f "sf-train eagle3.*-o run --resume auto" | while read -r p; do
  grep -qz '^SLURM_PROCID=1$' "/proc/$p/environ" 2>/dev/null && grep -qz "^SLURM_CONF=$SLURM_TESTBED_DIR/" "/proc/$p/environ" && echo "$p"; done | head -n 1) || true # the status is that of the last process looked at
kill -KILL "$victim" || { cat job.log; die "rank 1 of the batch job was not found"; }
got=0
wait $job || got=$?
[ "$got" = 0 ] || { cat job.log; die "the batch job ended with $got"; }
grep -q 'status 137: requeued, restart 1 of at most 20' job.log || { cat job.log; die "the batch job was not requeued"; }
grep -q 'resumed from' job.log || { cat job.log; die "the second start did not resume"; }

# The array: two parts of each of three checkpoints, merged by whoever comes last; a second array finds all of it done.
sf-train sft --target target --data chats.jsonl --set training.checkpoint_every=1 --set training.keep_checkpoints=9 \
  --set training.max_steps=3 -o tuned >/dev/null 2>err || { cat err; die "sft"; }
rm -rf run && mv tuned run
cp "$here/../../man/examples/aime/questions.jsonl" "$here/../../man/examples/slurm/eval.sbatch" .
printf '[generate]\nmax_new_tokens = 16\ntemperature = 1\n[eval]\nsamples = 2\n' >eval.toml
for _ in 1 2; do
  sbatch --wait --array=0-5 -o 'array-%a.log' eval.sbatch >/dev/null 2>&1 || { cat array-*.log; die "the array ended with $?"; }
done
grep -q 'done already' array-5.log || { cat array-5.log; die "the second array made it again"; }
expect 0 sf-eval checkpoints run -c eval.toml --questions questions.jsonl -o once
for whole in once/*.jsonl; do
  cmp <(tail -n +2 "$whole") <(tail -n +2 "evals/${whole#once/}") || die "the array's verdicts differ: $whole"
done
[ "$(ls evals/*.jsonl | wc -l)" = 3 ] || { ls evals; die "wanted three checkpoints"; }
