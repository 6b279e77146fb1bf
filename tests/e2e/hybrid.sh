#!/usr/bin/env bash
# Hybrid models become checkpoints: of a multimodal one the language part; what no layer reads is named, not dropped in
# silence; experts are fused on the way in and taken apart on the way out.
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
