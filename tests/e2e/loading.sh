#!/usr/bin/env bash
# Loading in named steps: files that differ between ranks, groups by class, the best checkpoint, a killed sf-init.
. "$(dirname "$0")/lib.sh"
tiny_setup
sft=(sf-train sft --data chats.jsonl --set training.max_steps=4 --set training.micro_batches=3)

# Two ranks that see different files end together, with the same status, naming both.
cp -r hf other-hf
python3 - <<'P'
data = bytearray(open("other-hf/model.safetensors", "rb").read())
data[-1] ^= 1
open("other-hf/model.safetensors", "wb").write(data)
P
sf-init model other-hf -o other >/dev/null 2>&1
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
rank() { RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "${sft[@]}" --target "$2" -o apart >/dev/null 2>err$1; }
rank 0 target & first=$!
got=0; rank 1 other || got=$?
one=0; wait $first || one=$?
[ "$got $one" = "65 65" ] || { cat err0 err1; die "ranks that see different files ended with $one and $got"; }
cat err0 err1 >err; says "ranks see different files: the target of rank 0 has identity"

# Groups by class: what is in no block is the root's, gathered once a step; the bits stay.
expect 0 "${sft[@]}" --target target --ranks 2 -o plain; says "loaded: files" "shards" "buffers" "values" "state"
expect 0 "${sft[@]}" --target target --ranks 2 -o wrapped --set 'shard.wrap=["LlamaDecoderLayer"]'
says "in the root group"
[ "$(digest plain/latest)" = "$(digest wrapped/latest)" ] || die "shard.wrap changed the bits"
"${sft[@]}" --target target --ranks 2 -o never --set 'shard.wrap=["LlamaDecoderLayer"]' --plan >out 2>err || { cat err; die "plan of shard.wrap"; }
grep -q "embed (root)" out && grep -q "head (root)" out || { cat out; die "the plan does not show the root group"; }
expect 78 "${sft[@]}" --target target -o x --set 'shard.wrap=["Blok"]'; says "no module is of class Blok"

# RUN/best names the checkpoint of lowest loss, and stays when newer ones push it out.
expect 0 "${sft[@]}" --target target -o run --set training.checkpoint_every=1 --set training.keep_checkpoints=1 \
  --set training.best=loss --set training.learning_rate=0.5 --set training.warmup_ratio=0
python3 - <<'P'
import json, os
losses = {r["step"]: r["loss"] for r in map(json.loads, open("run/metrics.jsonl")) if "loss" in r}
want = min(losses, key=losses.get)
assert os.readlink("run/best") == f"step-{want}", (os.readlink("run/best"), losses)
score = json.load(open("run/best/manifest.json"))["score"]["loss"]
assert score == losses[want], (score, losses)
P
sf-shard verify run/best >/dev/null || die "the best checkpoint is not whole"

# What a killed sf-init had finished is kept by --resume, and the result is that of a run in one go.
sf-init model hf --shard-bytes 64KiB -o whole >/dev/null 2>err || { cat err; die "sf-init model --shard-bytes"; }
for _ in $(seq 30); do
  sf-init model hf --shard-bytes 64KiB -o again >/dev/null 2>&1 & pid=$!
  while kill -0 $pid 2>/dev/null && ! grep -qs files .again.tmp-$pid/progress.json; do :; done
  kill -KILL $pid 2>/dev/null || true
  wait $pid 2>/dev/null || true
  [ -e again ] || break
  rm -rf again
done
[ ! -e again ] || die "sf-init was never killed in the middle"
sf-init model hf --shard-bytes 64KiB --resume -o again >/dev/null 2>err || { cat err; die "--resume"; }
says "files that a killed process had finished are kept"
sf-shard diff whole again >/dev/null || die "a resumed sf-init made another checkpoint"
sf-shard verify again >/dev/null || die "a resumed checkpoint is not whole"
[ -z "$(find . -maxdepth 1 -name '.again*' -print -quit)" ] && [ ! -e again/progress.json ] || die "notes were left behind"
sf-init model hf --ranks 3 -o three >/dev/null 2>err || { cat err; die "--ranks"; }
sf-shard diff whole three >/dev/null || die "--ranks changed the tensors"
echo "one path of loading, the same files on every rank, the best kept, a killed sf-init continued"
