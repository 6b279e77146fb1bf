#!/usr/bin/env bash
# sf-train sft: equal bits on 1, 2 and 3 ranks, a tied table stays one, and what is published is a target again.
. "$(dirname "$0")/lib.sh"
tiny_setup
cat >sft.toml <<'T'
[training]
learning_rate = 1e-3
micro_batches = 6
batch_size = 2
epochs = 3
T
echo '{"messages": [{"role": "user", "content": "no answer"}]}' >>chats.jsonl
sft=(sf-train sft -c sft.toml --target target --data chats.jsonl)
for w in 1 2 3; do
  "${sft[@]}" --ranks $w -o run$w >/dev/null 2>err || { cat err; die "W=$w"; }
  losses run$w >losses$w
done
says "1 of 31 rows are void"
[ "$(wc -l <losses1)" = 8 ] || die "8 steps wanted, $(wc -l <losses1) found"
for w in 2 3; do
  cmp losses1 losses$w || die "losses of W=$w differ from W=1"
  [ "$(digest run1/latest)" = "$(digest run$w/latest)" ] || die "weights of W=$w differ from W=1"
done
awk 'NR == 1 { first = $2 } END { exit !($2 < 0.9 * first) }' losses1 || { cat losses1; die "the loss does not fall"; }
# LibTorch's kernels give other bits of the same losses.
"${sft[@]}" --set engine.kernels=plain --set engine.threads=1 -o plain >/dev/null 2>err || { cat err; die "plain kernels"; }
losses plain | paste - losses1 | awk '{ apart = $2 - $5; if (apart) differ = 1; if (apart * apart > 1e-8 * $5 * $5) far = 1 } END { exit !differ || far }' ||
  { losses plain; die "losses with LibTorch's kernels: the same bits, or further than 1e-4 apart"; }
# Stopped and continued on other ranks: the same bits.
"${sft[@]}" --set training.max_steps=3 -o halves >/dev/null 2>err || { cat err; die first half; }
"${sft[@]}" --ranks 2 --resume auto -o halves >/dev/null 2>err || { cat err; die second half; }
[ "$(digest run1/latest)" = "$(digest halves/latest)" ] || die "a continued run gives other bits"
# The result is a target: the tied head is stored once, and it generates.
sf-shard verify run1/latest >/dev/null 2>err || { cat err; die verify; }
python3 -c 'import json, struct, sys
f = open("run1/latest/model.safetensors", "rb")
names = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
sys.exit("lm_head.weight" in names)' || die "the tied head is stored apart"
sf-eval generate --target run1/latest --questions chats.jsonl --limit 1 --set generate.max_new_tokens=4 >/dev/null 2>err ||
  { cat err; die generate; }
# bf16 compute: the same claim.
for w in 1 2; do
  "${sft[@]}" --set engine.compute_dtype=bf16 --ranks $w -o half$w >/dev/null 2>err || { cat err; die "bf16, W=$w"; }
done
[ "$(digest half1/latest)" = "$(digest half2/latest)" ] || die "bf16 weights of W=2 differ from W=1"
# Negative control: a gradient of the tied table that is counted once only must show.
SF_FAULT=engine.drop_alias "${sft[@]}" -o broken >/dev/null 2>err
[ "$(digest run1/latest)" != "$(digest broken/latest)" ] || die "the fault switch engine.drop_alias turned nothing red"
