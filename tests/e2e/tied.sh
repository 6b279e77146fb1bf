#!/usr/bin/env bash
# A tied model in BF16 stays tied: one AdamW step on 1, 2 and 3 ranks, gathered, published, exported, loaded again.
. "$(dirname "$0")/lib.sh"
tiny_setup family=qwen2
sf-init model hf --dtype bf16 -o target16 >/dev/null 2>err || { cat err; die target; }
step=(sf-train sft --target target16 --data chats.jsonl --set training.max_steps=1 --set training.micro_batches=3)
for w in 1 2 3; do
  "${step[@]}" --ranks $w -o run$w >/dev/null 2>err || { cat err; die "W=$w"; }
  sf-shard verify run$w/latest >/dev/null || die "W=$w: not whole"
  sf-shard export run$w/latest --to hf --dtype bf16 -o hf$w >/dev/null 2>err || { cat err; die "export, W=$w"; }
  sf-shard import hf$w -o back$w >/dev/null 2>err || { cat err; die "import, W=$w"; }
  sf-shard diff hf$w back$w >said || { cat said; die "W=$w: what was exported is loaded as something else"; }
  sf-shard diff run$w/latest/model.safetensors back$w/model.safetensors --values >said || { cat said; die "W=$w: the loaded bits are not the trained ones"; }
  echo "W=$w: $(cat said)"
  # Both names lead to one storage, before and after: the alias is recorded and nothing is stored under the second.
  for dir in run$w/latest back$w; do
    sf-shard inspect $dir | grep -q "alias  *lm_head.weight = model.embed_tokens.weight" || die "$dir lost the alias"
  done
  sf-shard diff run1/latest run$w/latest >said || { cat said; die "W=$w differs from W=1"; }
done
if sf-shard diff target16/model.safetensors run1/latest/model.safetensors --values >said; then die "the step changed nothing"; fi
# Negative control: a table whose head's gradient is dropped, as happens to a head that is a copy, is another table.
SF_FAULT=engine.drop_alias "${step[@]}" -o broken >/dev/null 2>err || { cat err; die "the faulted run"; }
if sf-shard diff run1/latest broken/latest >said; then die "the fault switch engine.drop_alias turned nothing red"; fi
echo "with the alias dropped: $(grep '^lm_head.weight  ' said)"
