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
# Verdicts about what is held out are files of sf-eval; an evaluation that is made again is the first one's equal.
cmp run1/held/step-6.jsonl halves/held/step-6.jsonl || die "step 6: other verdicts after a stop"
[ ! -e halves/held/step-6-again.jsonl ] || die "equal verdicts were kept twice"
sf-eval compare run1/held --against "step 0" >gain 2>err || { cat err; die compare; }
grep -q "^step 6 " gain || { cat gain; die "no line of step 6"; }
sf-eval score run1/held/answers/step-6.jsonl --questions held.jsonl --rule regex --pattern $'^\xef\xbf\xbd' -o again.jsonl >/dev/null 2>err ||
  { cat err; die "answers of held-out questions cannot be scored"; }
cmp <(tail -n +2 run1/held/step-6.jsonl) <(tail -n +2 again.jsonl) || die "scored again the verdicts differ"
# Seconds and memory by phase, from the cold start on; no phase holds more than the plan says. A picture of it all.
python3 - <<'P' || die "phases or memory"
import json
rows = [json.loads(line) for line in open("run1/metrics.jsonl")]
steps = [r for r in rows if r["event"] == "step"]
assert [r["step"] for r in steps] == list(range(7)), [r["step"] for r in steps]
assert steps[0]["time_cold_start_s"] > 0 and "acc" not in steps[0]
for r in steps[1:]:
    assert min(r[f"time_{name}_s"] for name in ("rollout", "reward", "log_probs", "update", "sync")) >= 0
    assert r["memory_update_peak"] > 0 and 0 < r["actor/entropy"] < 10 and 0 <= r["response_length/clip_ratio"] <= 1
for use in rows[-1]["memory"]:
    assert 0 < use["peak_measured"] <= use["peak_predicted"], use
P
sf-eval report run1 -o report.html >/dev/null 2>err || { cat err; die report; }
for chart in held reward mismatch length entropy grad_norm time; do [ -s report-$chart.svg ] || die "no picture of $chart"; done
sf-eval report run1 --trace -o trace.svg >/dev/null 2>err || { cat err; die "training.trace_every was not followed"; }
# A program that scores as the rule does gives the same bits, and is begun again when it ends.
cat >reward.py <<'P'
import json, sys
for count, line in enumerate(sys.stdin):
    if count == 50: sys.exit(3)
    asked = json.loads(line)
    print(json.dumps({"n": asked["n"], "score": float("\n\ufffd" in "\n" + asked["response"]), "why": "rule"}), flush=True)
P
"${grpo[@]}" --ranks 2 --reward "python3 reward.py" -o told >/dev/null 2>err || { cat err; die reward; }
says "ended with 3, and owes" "it is begun again"
[ "$(digest run1/latest)" = "$(digest told/latest)" ] || die "a program that scores as the rule does gives other bits"
grep -qE '"reward":\{"n":0,"score":[01]\.0,"why":"rule"\}' told/rollouts/step-1.jsonl || die "what the program said is not kept"
# A score that is no number, or beyond all measure, is refused with its question, once.
for score in NaN 1e308; do
  expect 65 "${grpo[@]}" --ranks 2 -o never --reward "sed -u 's/^{\"n\":\([0-9]*\),.*/{\"n\":\1,\"score\":$score}/'"
  says '"score\":'$score; [ "$(grep -c error: err)" = 1 ] || { cat err; die "a refused score is told twice"; }
done
says "must lie within -1e+12 and 1e+12"
# The distance to the target without its adapter, dynamic sampling, and the update's own log-probabilities.
for w in 1 2; do
  "${grpo[@]}" --set training.max_steps=3 --set grpo.kl_coef=0.5 --set grpo.dynamic_sampling=3 \
    --set grpo.old_log_probs=update --ranks $w -o more$w >/dev/null 2>err || { cat err; die "more, W=$w"; }
done
[ "$(digest more1/latest)" = "$(digest more2/latest)" ] || die "more: adapters of W=2 differ from W=1"
python3 - <<'P' || die "distance or dynamic sampling"
import json
steps = [r for r in map(json.loads, open("more1/metrics.jsonl")) if "acc" in r]
assert steps[0]["actor/kl_loss"] == 0 < steps[2]["actor/kl_loss"], [r["actor/kl_loss"] for r in steps]
for r in steps:
    assert r["grpo/zero_variance_groups"] == 0 and r["grpo/groups"] <= 4 <= r["grpo/drawn_groups"] <= 12, r
P
# What is published is an adapter.
sf-shard verify run1/latest >/dev/null 2>err || { cat err; die verify; }
sf-eval generate --target target --adapter run1/latest --questions held.jsonl --limit 1 >/dev/null 2>err ||
  { cat err; die generate; }
# Ended inside of a rollout, by request and without warning: it is drawn again, and the bits are those of no stop.
long=("${grpo[@]}" --set generate.max_new_tokens=120 --set generate.ignore_eos=true --set grpo.token_budget=4096
  --set training.max_steps=4 --set grpo.eval_every=0 --set training.checkpoint_every=1)
"${long[@]}" -o whole >/dev/null 2>err || { cat err; die whole; }
reach() {  # reach STEP SIGNAL: the run goes on, and gets the signal in the rollout behind STEP
  "${long[@]}" --resume auto -o ended >/dev/null 2>err &
  local run=$! tries=0
  until grep -q "\"step\":$1,.*\"acc\"" ended/metrics.jsonl 2>/dev/null; do
    [ $((tries += 1)) -lt 2000 ] && kill -0 $run 2>/dev/null || { cat err; die "it never came to step $1"; }
    sleep 0.05
  done
  sleep 0.2
  kill -s "$2" $run
  status=0
  wait $run || status=$?
}
reach 1 TERM
[ "$status" = 75 ] || { cat err; die "TERM in a rollout: $status"; }
says "in a rollout that will be drawn again"
reach 2 KILL
"${long[@]}" --resume auto -o ended >/dev/null 2>err || { cat err; die "the end after both"; }
[ "$(digest whole/latest)" = "$(digest ended/latest)" ] || die "ended in rollouts, it comes to other bits"
for n in 1 2 3 4; do cmp whole/rollouts/step-$n.jsonl ended/rollouts/step-$n.jsonl || die "step $n: other responses"; done
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
# What no evaluation reads is said; a run goes on under the settings and questions that it began with.
expect 78 sf-train grpo -c rl.toml --target target --adapter adapter0 --questions train.jsonl --rule regex --pattern e \
  --set grpo.eval_every=2 -o never
says "grpo.eval_every=2 to 0 evaluations (there is no --held)"
expect 76 "${grpo[@]}" --resume auto --set grpo.clip_high=0.5 -o run1
says "grpo.clip_high=0.5"
for drawn in target.compute_dtype=bf16 eval.system=Answer; do
  for how in --plan ''; do expect 76 "${grpo[@]}" --resume auto --set $drawn $how -o run1; says "$drawn"; done
done
expect 0 "${grpo[@]}" --resume auto --set grpo.kl_coef=0 --set target.compute_dtype=fp32 --set generate.temperature=1 --plan -o run1 # as it was
sf-init lora target --rank 4 --alpha 8 --set lora.seed=7 -o other0 >/dev/null 2>err || { cat err; die init; }
for how in --plan ''; do
  expect 76 sf-train grpo -c rl.toml --target target --adapter other0 --questions train.jsonl --held held.jsonl --rule regex \
    --pattern $'^\xef\xbf\xbd' --set engine.threads=1 --resume auto $how -o run1
  says "goes on with the adapter that its run began with, " "other0 is "
done
head -n 2 held.jsonl >other.jsonl
expect 76 sf-train grpo -c rl.toml --target target --adapter adapter0 --questions train.jsonl --held other.jsonl \
  --rule regex --pattern $'^\xef\xbf\xbd' --set engine.threads=1 --resume auto -o run1
says "held out"
# What is wrong with a word is told with its key, where it was given, and what it may be.
for bad in 'grpo.kl=k9|grpo.kl: wanted k1, abs, k2 or k3' 'grpo.correction=two|grpo.correction: wanted a positive number, or LOW_HIGH' \
  'grpo.rejection=token_k4|grpo.rejection: wanted token_k, seq_sum_k or seq_mean_k with 1, 2 or 3 behind it'; do
  value=${bad%|*}
  for how in --plan ''; do expect 78 "${grpo[@]}" --set "$value" $how -o never; says "error: --set: ${bad#*|}" "found \"${value#*=}\""; done
done
printf '[grpo]\nrejection = "token_k1"\nrejection_bounds = "0.5"\n' >bad.toml
for how in --plan ''; do
  expect 78 "${grpo[@]}" -c bad.toml $how -o never; says 'error: bad.toml:3:1: grpo.rejection_bounds: wanted 1 or more' 'found "0.5"'
done
# A recipe may say what is work to come: a plan says so too, a run refuses it.
expect 0 "${grpo[@]}" --set planned.sampler_ranks=2 --ranks 2 --plan -o never
says "planned.sampler_ranks=2 to the sampler (planned: no run does it yet)"
expect 78 "${grpo[@]}" --set planned.sampler_ranks=2 -o never
says "planned.sampler_ranks" "is work to come"
expect 78 "${grpo[@]}" --set planned.sampler_ranks=3 --ranks 2 --plan -o never
says "planned.sampler_ranks = 3" "does not divide 2 ranks"
expect 65 sf-train grpo -c rl.toml --target target --adapter adapter0 --questions train.jsonl --held train.jsonl \
  --rule regex --pattern e -o never
says "is trained on: what is held out must not be"
