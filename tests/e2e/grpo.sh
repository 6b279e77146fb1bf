#!/usr/bin/env bash
# sf-train grpo: equal responses and bits on 1 and 2 ranks and after a stop; what is rewarded becomes likelier; an adapter
# that does not reach the sampler is refused.
. "$(dirname "$0")/lib.sh"
python3 "$here/../support/make_tiny_model.py" hf
sf-init model hf -o target >/dev/null 2>&1
sf-init lora target --rank 4 --alpha 8 -o adapter0 >/dev/null 2>err || { cat err; die init; }
digest() { sha256sum "$1/adapter_model.safetensors" | cut -d' ' -f1; }
python3 - <<'P'
import json
words = "cat dog land sand other over theory thunder inner and".split()
with open("train.jsonl", "w") as train, open("held.jsonl", "w") as held:
    for i, a in enumerate(words):
        for b in words:
            row = {"id": f"{a}-{b}", "question": f"the {a} {b}", "answer": "\ufffd"}
            (held if i >= 8 else train).write(json.dumps(row) + "\n")
P
cat >rl.toml <<'T'
[training]
learning_rate = 3e-2
schedule = "constant"
warmup_ratio = 0
max_steps = 6

[grpo]
prompts = 4
responses = 8
token_budget = 256
eval_every = 3
clip_high = 0.28
keep_rollouts = true

[generate]
max_new_tokens = 6
temperature = 1.0
T
# Rewarded: to begin with a byte that is no character, as half of a random model's answers do.
grpo=(sf-train grpo -c rl.toml --target target --adapter adapter0 --questions train.jsonl --held held.jsonl
  --rule regex --pattern $'^\xef\xbf\xbd' --set engine.threads=1)
# The plan of what is about to run: fits, counts the sampler, and touches nothing.
"${grpo[@]}" --plan --ranks 2 -o run2 >plan 2>err || { cat err; die plan; }
grep -q "sampler and its caches" plan || { cat plan; die "the plan leaves out the sampler"; }
[ ! -e run2 ] || die "--plan made a directory"
exact() { python3 -c '
import json, sys
for line in open(sys.argv[1]):
    record = json.loads(line)
    if "loss" in record: print(record["step"], *(repr(record[name]) for name in ("loss", "acc", "actor/grad_norm")))' \
  "$1/metrics.jsonl"; }
for w in 1 2; do
  "${grpo[@]}" --ranks $w -o run$w >/dev/null 2>err || { cat err; die "W=$w"; }
  says "held out after step 0:" "held out after step 3:" "held out after step 6:"
  exact run$w >exact$w
done
[ "$(wc -l <exact1)" = 6 ] || die "wanted the records of six steps"
cmp exact1 exact2 || die "losses of W=2 differ from W=1"
[ "$(digest run1/latest)" = "$(digest run2/latest)" ] || die "adapters of W=2 differ from W=1"
[ "$(digest run1/latest)" != "$(digest adapter0)" ] || die "the adapter did not train"
for n in 1 2 3 4 5 6; do
  cmp run1/rollouts/step-$n.jsonl run2/rollouts/step-$n.jsonl || die "step $n: other responses on 2 ranks"
done
# What is rewarded becomes likelier, held out or not. Of answers of one token, all of the credit is that token's.
"${grpo[@]}" --set generate.max_new_tokens=1 --set training.max_steps=12 --set grpo.responses=16 \
  --set grpo.eval_every=0 -o learns >/dev/null 2>err || { cat err; die learns; }
python3 - <<'P' || die "what is rewarded does not become likelier"
import json, sys
rows = [json.loads(line) for line in open("learns/metrics.jsonl")]
acc = [r["acc"] for r in rows if "acc" in r]
held = [r["val/acc"] for r in rows if "val/acc" in r]
print(acc, held, file=sys.stderr)
sys.exit(not (len(acc) == 12 and sum(acc[-2:]) > sum(acc[:2]) + 0.4 and len(held) == 2 and held[1] > held[0] + 0.4))
P
# Sampler and learner agree on what was sampled: two fp32 forms of one model.
python3 -c 'import json, sys
rows = [json.loads(line) for line in open("run1/metrics.jsonl")]
apart = [r["training/rollout_probs_diff_mean"] for r in rows if "acc" in r]
sys.exit(not max(apart) < 1e-5)' || die "sampler and learner differ"
# Stopped and continued on other ranks: the same bits.
"${grpo[@]}" --set training.max_steps=4 -o halves >/dev/null 2>err || { cat err; die first half; }
"${grpo[@]}" --ranks 2 --resume auto -o halves >/dev/null 2>err || { cat err; die second half; }
[ "$(digest run1/latest)" = "$(digest halves/latest)" ] || die "a continued run gives other bits"
for n in 5 6; do
  cmp run1/rollouts/step-$n.jsonl halves/rollouts/step-$n.jsonl || die "step $n: other responses after a stop"
done
# What is published is an adapter.
sf-shard verify run1/latest >/dev/null 2>err || { cat err; die verify; }
sf-eval generate --target target --adapter run1/latest --questions held.jsonl --limit 1 >/dev/null 2>err ||
  { cat err; die generate; }
# Negative controls: an adapter that stays behind is refused with both digests; what is not sampled as it is trained too.
SF_FAULT=gen.stale_adapter expect 76 "${grpo[@]}" --set training.max_steps=2 -o stale
says "the sampler of rank 0 holds adapter 0 (" "the trainer published 1 ("
SF_FAULT=gen.ignore_adapter "${grpo[@]}" -o deaf >/dev/null 2>err || { cat err; die deaf; }
python3 -c 'import json, sys
rows = [json.loads(line) for line in open("deaf/metrics.jsonl")]
sys.exit(not [r for r in rows if "acc" in r][-1]["training/rollout_probs_diff_mean"] > 1e-4)' ||
  die "the fault switch gen.ignore_adapter turned nothing red"
expect 78 "${grpo[@]}" --set generate.temperature=0 -o never
says "all responses to a prompt would be equal"
# A recipe may say what is work to come: a plan says so too, a run refuses it.
expect 0 "${grpo[@]}" --set planned.sampler_ranks=2 --plan -o never
says "planned.sampler_ranks=2 to the sampler (planned: no run does it yet)"
expect 78 "${grpo[@]}" --set planned.sampler_ranks=2 -o never
says "planned.sampler_ranks" "is work to come"
expect 65 sf-train grpo -c rl.toml --target target --adapter adapter0 --questions train.jsonl --held train.jsonl \
  --rule regex --pattern e -o never
says "is trained on: what is held out must not be"
