#!/usr/bin/env bash
# LoRA: equal bits on 1, 2 and 3 ranks, the target untouched, what is published is an adapter that PEFT's names describe.
. "$(dirname "$0")/lib.sh"
tiny_setup
digest() { sha256sum "$1/adapter_model.safetensors" | cut -d' ' -f1; }
cat >lora.toml <<'T'
[training]
learning_rate = 1e-2
micro_batches = 6
batch_size = 2
epochs = 3
T
sf-init lora target --rank 5 --alpha 10 -o adapter0 >/dev/null 2>err || { cat err; die init; }
before=$(sha256sum target/model.safetensors)
lora=(sf-train sft -c lora.toml --target target --adapter adapter0 --data chats.jsonl)
for w in 1 2 3; do
  "${lora[@]}" --ranks $w -o run$w >/dev/null 2>err || { cat err; die "W=$w"; }
  losses run$w >losses$w
done
for w in 2 3; do
  cmp losses1 losses$w || die "losses of W=$w differ from W=1"
  [ "$(digest run1/latest)" = "$(digest run$w/latest)" ] || die "adapters of W=$w differ from W=1"
done
awk 'NR == 1 { first = $2 } END { exit !($2 < 0.98 * first) }' losses1 || { cat losses1; die "the loss does not fall"; }
[ "$before" = "$(sha256sum target/model.safetensors)" ] || die "the target changed"
# Stopped and continued on other ranks: the same bits.
"${lora[@]}" --set training.max_steps=3 -o halves >/dev/null 2>err || { cat err; die first half; }
"${lora[@]}" --ranks 2 --resume auto -o halves >/dev/null 2>err || { cat err; die second half; }
[ "$(digest run1/latest)" = "$(digest halves/latest)" ] || die "a continued run gives other bits"
# Masters of bf16: the same bits on any ranks, stored as bf16, what did not move is told; not to be mixed with fp32.
for w in 1 2; do
  "${lora[@]}" --set training.adapter_dtype=bf16 --ranks $w -o narrow$w >/dev/null 2>err || { cat err; die "bf16, W=$w"; }
  says "applied training.adapter_dtype=bf16 to 84 tensors of the adapter by engine"
done
[ "$(digest narrow1/latest)" = "$(digest narrow2/latest)" ] || die "bf16 adapters of W=2 differ from W=1"
sf-shard inspect narrow1/latest >tables && grep -q "lora_A.*BF16" tables || { cat tables; die "not stored as bf16"; }
grep -q '"kept":0\.' narrow1/metrics.jsonl || die "the share that did not move is not told"
grep -q '"adapter_dtype": *"bf16"' narrow1/latest/manifest.json || die "the manifest does not state the type"
expect 78 "${lora[@]}" --resume auto -o narrow1
says 'was trained with training.adapter_dtype = "bf16", now it is "fp32"'
# With other settings, or without its adapter, it does not go on.
sf-init lora target --rank 5 --alpha 11 -o alpha11 >/dev/null 2>err || { cat err; die init; }
expect 78 sf-train sft -c lora.toml --target target --adapter alpha11 --data chats.jsonl --resume auto -o halves
says "lora_alpha was 10, is 11"
expect 78 sf-train sft -c lora.toml --target target --data chats.jsonl --resume auto -o halves
says "holds an adapter: go on from it with --adapter, the one that it began with"
# Nor with another adapter of the same settings.
sf-init lora target --rank 5 --alpha 10 --set lora.seed=7 -o other0 >/dev/null 2>err || { cat err; die init; }
for how in --plan ''; do
  expect 76 sf-train sft -c lora.toml --target target --adapter other0 --data chats.jsonl --resume auto $how -o halves
  says "goes on with the adapter that its run began with, $(sf-shard inspect adapter0 --format json | python3 -c 'import json, sys; print(json.load(sys.stdin)["identity"])')" "other0 is"
done
# An adapter, and nothing of the target: every tensor a LoRA matrix, every moment one of them.
sf-shard verify run1/latest >/dev/null 2>err || { cat err; die verify; }
python3 - run1/latest <<'P' || die "the checkpoint is not an adapter"
import json, pathlib, struct, sys
run = pathlib.Path(sys.argv[1])
def names(file):
    with open(file, "rb") as f:
        return {n for n in json.loads(f.read(struct.unpack("<Q", f.read(8))[0])) if n != "__metadata__"}
weights, moments = names(run / "adapter_model.safetensors"), names(run / "optimizer.safetensors")
assert weights and all(".lora_A.weight" in n or ".lora_B.weight" in n for n in weights), weights
assert moments == {n + m for n in weights for m in (".exp_avg", ".exp_avg_sq")}, moments
assert json.loads((run / "adapter_config.json").read_text())["r"] == 5
P
# Changed after it was published, it neither answers nor trains.
cp -rL run1/latest flipped
size=$(stat -c %s flipped/adapter_model.safetensors)
printf '\377\1' | dd of=flipped/adapter_model.safetensors bs=1 seek=$((size - 4)) conv=notrunc status=none
expect 65 sf-eval generate --target target --adapter flipped --questions chats.jsonl; says "are not those that were published"
expect 65 sf-train sft -c lora.toml --target target --adapter flipped --data chats.jsonl -o never; says "are not those that were published"
# Nor is it merged, nor into a damaged target; what was merged and damaged is not taken apart; a plan touches nothing.
expect 65 sf-shard merge flipped -o never; says "are not those that were published"
cp -r target chipped
printf '\377\1' | dd of=chipped/model.safetensors bs=1 seek=9000 conv=notrunc status=none
expect 65 sf-shard merge run1/latest --target chipped -o never; says "chipped is not whole"
sf-shard merge run1/latest --keep -o kept >/dev/null 2>err || { cat err; die merge; }
size=$(stat -c %s kept/unmerged.safetensors)
printf '\377\1' | dd of=kept/unmerged.safetensors bs=1 seek=$((size - 4)) conv=notrunc status=none
expect 65 sf-shard merge kept --undo -o never; says "kept is not whole"
for verb in "merge run1/latest" "reshard target" "export target --to hf" "import hf"; do
  expect 0 sf-shard $verb -o never --plan
done
[ ! -e never ] || die "a refused or planned output is there"
# It answers with its target; a fresh one changes nothing, a trained one does.
asked() {  # answers alone: the line before them names the adapter
  sf-eval generate --questions chats.jsonl --limit 4 --set generate.max_new_tokens=8 "$@" 2>err | tail -n +2
}
answer() { asked --target target "$@"; }
answer >plain || { cat err; die generate; }
answer --adapter adapter0 >fresh || { cat err; die "generate --adapter"; }
answer --adapter run1/latest >trained || { cat err; die "generate --adapter"; }
cmp plain fresh || die "a fresh adapter changes answers"
cmp -s plain trained && die "a trained adapter changes no answer"
# PEFT writes no manifest: such a directory is taken on trust, and said to be.
mkdir peft && cp run1/latest/adapter_* peft
answer --adapter peft >from_peft || { cat err; die "PEFT's directory"; }
says "taken on trust"
cmp trained from_peft || die "the manifest changes answers"
# Answers that one adapter began are not continued by another.
sf-eval generate --target target --questions chats.jsonl --set generate.max_new_tokens=64 --set generate.ignore_eos=true \
  --adapter run1/latest -o begun 2>err &
for _ in $(seq 2000); do grep -q completion begun.partial 2>/dev/null && break; sleep 0.005; done
kill -KILL $! && wait $! 2>/dev/null || true
[ -e begun.partial ] || die "it was not killed on the way"
expect 76 sf-eval generate --target target --questions chats.jsonl --set generate.max_new_tokens=64 \
  --set generate.ignore_eos=true --adapter adapter0 -o begun
says "was begun with other settings: adapter was"
rm begun.partial
# Experts, each with an adapter of its own: the same claims.
python3 "$here/../support/make_tiny_model.py" moe family=qwen3_moe layers=2
sf-init model moe -o experts >/dev/null 2>err || { cat err; die "init of experts"; }
sf-init lora experts --rank 2 --targets q_proj --experts experts.gate_up_proj,experts.down_proj -o experts0 >/dev/null 2>err ||
  { cat err; die "init of their adapters"; }
for w in 1 3; do  # with three ranks some hold nothing of an A of two rows
  sf-train sft -c lora.toml --target experts --adapter experts0 --data chats.jsonl --ranks $w -o experts$w-run \
    >/dev/null 2>err || { cat err; die "experts, W=$w"; }
done
[ "$(digest experts1-run/latest)" = "$(digest experts3-run/latest)" ] || die "experts' adapters of W=3 differ from W=1"
[ "$(digest experts0)" != "$(digest experts1-run/latest)" ] || die "experts' adapters did not train"
sf-shard verify experts1-run/latest >/dev/null 2>err || { cat err; die "verify of experts' adapters"; }
answer() { asked --target experts "$@"; }
answer >plain || { cat err; die "generate of experts"; }
answer --set generate.batch=1 >one || { cat err; die "generate of experts"; }
answer --adapter experts1-run/latest >trained || { cat err; die "generate of experts with adapters"; }
cmp plain one || die "the batch changes the answers of experts"
cmp -s plain trained && die "trained adapters of experts change no answer"
# Negative control: a scale that is forgotten must show.
SF_FAULT=model.adapter_unscaled "${lora[@]}" -o broken >/dev/null 2>err
[ "$(digest run1/latest)" != "$(digest broken/latest)" ] || die "the fault switch model.adapter_unscaled turned nothing red"
