#!/usr/bin/env bash
# A heterogeneous job, capture and trainers: one component told to stop, the job restarted by the scheduler, a capture
# killed; the weights are those of a run that nothing disturbed.
. "$(dirname "$0")/lib.sh"
export SF_BIND=127.0.0.1 # both nodes are this host
tiny_setup
sed -i 's/^epochs = .*/epochs = 60\ncheckpoint_every = 5/' run.toml
features -o feats >/dev/null 2>err || { cat err; die features; }
expect 0 sf-train eagle3 -c run.toml --draft draft0 --from feats -o calm

wait_for() { # wait_for SECONDS WHAT COMMAND...
  for ((i = 0; i < $1 * 10; i++)); do "${@:3}" >/dev/null 2>&1 && return; sleep 0.1; done
  cat job.log
  squeue -o '%i %T %r'
  die "$2: not within $1 s"
}
of_job() { # of_job COMMAND: its processes that run in this cluster
  pgrep -f "$1" | while read -r p; do
    grep -qz "^SLURM_CONF=$SLURM_TESTBED_DIR/" "/proc/$p/environ" 2>/dev/null && [ "$(cat "/proc/$p/comm")" = "${1%% *}" ] && echo "$p"
  done
}
# shellcheck disable=SC2154  # here comes with lib.sh
sed "s/--time=12:00:00/--time=00:30:00/" "$here/../../man/examples/slurm/stream.sbatch" >stream.sbatch # a short job is placed at once
job=$(sbatch --parsable -o job.log stream.sbatch)
wait_for 40 "a first checkpoint" test -e run/latest
scancel -s TERM "$job+1" # to the trainers' component alone
wait_for 20 "the end of the trainers" grep -q 'status 75: requeued, restart 1 of at most 20' job.log
# Where nothing else happens the scheduler of such jobs looks again only after a change.
restarted() { scontrol update "jobid=$job" comment="$SECONDS"; grep -q 'resumed from' job.log; }
wait_for 60 "a second start" restarted
victim=$(of_job "sf-capture features" | head -n 1) || true # the status is that of the last process looked at
kill -KILL "${victim:?no capture runs}"
wait_for 30 "a second capture" grep -q 'capture ended with 137: started again' job.log
wait_for 60 "the job's end" bash -c "! squeue -h -j $job | grep ."
cmp <(losses calm) <(losses run) || { cat job.log; die "losses differ from those of a run from files"; }
[ "$(digest calm/latest)" = "$(digest run/latest)" ] || die "weights differ from those of a run from files"
grep 'pipe: asked' job.log | tail -n 1
