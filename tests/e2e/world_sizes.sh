#!/usr/bin/env bash
# W = 1, 2, 3, 4 ranks: equal bits in losses and weights for the same windows of 12 micro-batches.
. "$(dirname "$0")/lib.sh"
tiny_setup
features -o feats >/dev/null 2>err || { cat err; die features; }
for w in 1 2 3 4; do
  sf-train eagle3 -c run.toml --draft draft0 --from feats --ranks $w -o run$w >/dev/null 2>err || { cat err; die "W=$w"; }
  losses run$w >losses$w
done
[ "$(wc -l <losses1)" = 10 ] || die "10 steps wanted, $(wc -l <losses1) found"
for w in 2 3 4; do
  cmp losses1 losses$w || die "losses of W=$w differ from W=1"
  [ "$(digest run1/latest)" = "$(digest run$w/latest)" ] || die "weights of W=$w differ from W=1"
done
# Over a network too: ranks of the supervisor, and ranks that nobody forked together, which find shared memory.
train() { sf-train eagle3 -c run.toml --draft draft0 --from feats "$@"; }
train --ranks 2 --set 'comm.group="gloo"' -v -o gloo >/dev/null 2>err || { cat err; die "gloo"; }
says 'applied comm.group=gloo to 2 ranks by comm'
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
torchrun() { RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port train -v -o torchrun >/dev/null 2>err$1; }
torchrun 1 & other=$!
torchrun 0 || { cat err0; die "torchrun"; }
wait $other || { cat err1; die "torchrun, rank 1"; }
cp err0 err && says 'and talk by shm'
for run in gloo torchrun; do
  losses $run >losses.other
  cmp losses1 losses.other || die "losses of $run differ from W=1"
  [ "$(digest run1/latest)" = "$(digest $run/latest)" ] || die "weights of $run differ from W=1"
done
# Ranks write checkpoints together: a directory that they do not share is refused, before anything is there.
apart() {
  mkdir at$1
  (cd at$1 && RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port sf-train eagle3 -c ../run.toml \
    --draft ../draft0 --from ../feats -o apart) >/dev/null 2>err$1
}
apart 1 & other=$!
rc=0; apart 0 || rc=$?
[ $rc = 73 ] || { cat err0; die "two directories: status $rc on rank 0"; }
rc=0; wait $other || rc=$?
[ $rc = 73 ] || { cat err1; die "two directories: status $rc on rank 1"; }
cp err1 err && says "at1/apart is not the directory that rank 0 sees"
[ "$(ls -A at0 at1 | grep -c apart)" = 0 ] || die "something was left of a run in two directories"
# Of ranks that nobody forked together one tells an error that one found; each tells what all do when it is asked.
cp -r feats torn && truncate -s -2000 torn/rows-0-00000.frames
found() { RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${@:2}" >/dev/null 2>err$1; }
for group in gloo shm; do
  for from in torn nowhere.handle; do
    one=(sf-train eagle3 -c run.toml --draft draft0 --from "$from" --set "comm.group=\"$group\"" -o found)
    [ $from = torn ] || one+=(--set stream.heartbeat_s=0.2)
    [ $from = torn ] || echo "no handle" >nowhere.handle
    found 1 "${one[@]}" & other=$!
    rc=0; found 0 "${one[@]}" || rc=$?
    wait $other && die "$from: rank 1 ended well"
    [ $rc != 0 ] && [ "$(cat err0 err1 | grep -c "error: ")" = 1 ] || { cat err0 err1; die "$from by $group: an error of one rank is told otherwise than once ($rc)"; }
  done
done
asked=(sf-train eagle3 -c run.toml --draft draft0 --from feats --set training.epochs=100000 --set 'comm.group="gloo"' -o asked)
for rank in 0 1; do
  RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port env --default-signal=QUIT "${asked[@]}" >/dev/null 2>err$rank &
  pids[rank]=$!
done
for _ in $(seq 200); do [ -s asked/metrics.jsonl ] && break; sleep 0.05; done
kill -QUIT "${pids[0]}"
for _ in $(seq 100); do [ "$(grep -cE "warning: rank [01] \(pid" err0)" = 2 ] && break; sleep 0.05; done
[ "$(grep -cE "warning: rank [01] \(pid" err0)" = 2 ] || { cat err0; die "QUIT does not tell what both ranks do, a line each"; }
kill -TERM "${pids[@]}"; wait "${pids[@]}" || true
# Layouts, and what is traded for memory or time, change where bytes lie and nothing else.
train --ranks 2 -o copies --set shard.backend=replicate \
  --set engine.prefetch=1 --set engine.poison=true >/dev/null 2>err || { cat err; die copies; }
train --ranks 4 -o mesh --set shard.replicas=2 \
  --set shard.reshard=none --set engine.mode=offload >/dev/null 2>err || { cat err; die mesh; }
for run in copies mesh; do
  [ "$(digest run1/latest)" = "$(digest $run/latest)" ] || die "weights of $run differ from W=1"
done
# Negative control: summing on each rank before the fold must show.
SF_FAULT=engine.local_sum sf-train eagle3 -c run.toml --draft draft0 --from feats --ranks 2 -o broken >/dev/null 2>err
[ "$(digest run1/latest)" != "$(digest broken/latest)" ] || die "the fault switch engine.local_sum turned nothing red"
