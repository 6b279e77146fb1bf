#!/usr/bin/env bash
# Hybrid models become checkpoints: of a multimodal one the language part; what no layer reads is named, not dropped in
# silence; experts are fused on the way in and taken apart on the way out. Then the whole chain: fine-tuned on any number
# of ranks with equal bits, adapted, captured, generated from, drafted for.
. "$(dirname "$0")/lib.sh"
names() { python3 -c '
import json, struct, sys
f = open(sys.argv[1] + "/model.safetensors", "rb")
print("\n".join(sorted(json.loads(f.read(struct.unpack("<Q", f.read(8))[0])))))' "$1"; }
for family in qwen3_next qwen3_5 qwen3_5_moe; do
  python3 "$here/../support/make_tiny_model.py" "hf-$family" family=$family layers=4 head_dim=16 hidden=32 tied=false
  sf-init model "hf-$family" -o $family >/dev/null 2>err || { cat err; die "init of $family"; }
  says "are not used, they belong to no layer of the language model" "mtp.fc.weight"
  sf-shard verify $family >/dev/null 2>err || { cat err; die "verify $family"; }
  ! names $family | grep -E "visual|language_model|mtp" || die "$family holds what no layer reads"
  sf-shard export $family --to hf -o out-$family >/dev/null 2>err || { cat err; die "export of $family"; }
  sf-init model out-$family -o again-$family >/dev/null 2>err || { cat err; die "init of the export of $family"; }
  [ "$(digest $family)" = "$(digest again-$family)" ] || die "the export of $family reads back as another model"
done
sf-init model hf-qwen3_5 -o plain 2>err >/dev/null && says "2 tensors are not used" "model.visual.patch_embed.proj.weight"
tiny_chats 12 chats.jsonl
cat >run.toml <<'T'
[training]
learning_rate = 1e-3
micro_batches = 4
unroll = 2
max_steps = 2
T
for family in qwen3_next qwen3_5_moe; do
  for w in 1 2; do
    sf-train sft -c run.toml --target $family --data chats.jsonl --ranks $w -o $family-run$w >/dev/null 2>err || { cat err; die "sft of $family, W=$w"; }
  done
  [ "$(digest $family-run1/latest)" = "$(digest $family-run2/latest)" ] || die "weights of $family differ between 1 and 2 ranks"
  sf-eval generate --target $family-run1/latest --questions chats.jsonl --limit 2 --set generate.max_new_tokens=6 >out 2>err || { cat err; die "generate, $family"; }
done
# Adapters on every kind of layer, and on the banks of experts.
sf-init lora qwen3_5_moe --rank 2 --targets q_proj,o_proj,in_proj_qkv,in_proj_z,in_proj_a,in_proj_b,out_proj,gate_proj,down_proj \
  --experts experts.gate_up_proj,experts.down_proj -o adapter0 >/dev/null 2>err || { cat err; die "init of an adapter"; }
for w in 1 2; do
  sf-train sft -c run.toml --target qwen3_5_moe --data chats.jsonl --adapter adapter0 --ranks $w -o lora$w >/dev/null 2>err || { cat err; die "adapter, W=$w"; }
done
cmp lora1/latest/adapter_model.safetensors lora2/latest/adapter_model.safetensors || die "adapters differ between 1 and 2 ranks"
# Features of its layers train a draft, whose proposals leave greedy answers as they are.
sf-init draft eagle3 --target qwen3_next --draft-vocab 64 --data chats.jsonl -o draft0 >/dev/null 2>err || { cat err; die draft; }
sf-capture features -c run.toml --target qwen3_next --draft draft0 --data chats.jsonl -o features >/dev/null 2>err || { cat err; die features; }
sf-train eagle3 -c run.toml --draft draft0 --from features -o eagle >/dev/null 2>err || { cat err; die eagle3; }
sf-eval accept --target qwen3_next --draft eagle/latest --prompts chats.jsonl --limit 3 --set generate.max_new_tokens=12 >out 2>err || { cat err; die accept; }
# Ranks that share a target cannot share these; the plan says so as the run does.
for plan in "" --plan; do
  expect 78 sf-capture features -c run.toml --target qwen3_next --draft draft0 --data chats.jsonl --ranks 2 $plan -o never
  says "cannot lie in shards over 2 ranks" "replicate"
done
