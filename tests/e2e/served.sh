#!/usr/bin/env bash
# eval.interval: held-out prompts decoded while a draft trains. The counts are those of sf-eval accept, whatever the
# number of ranks; training does not notice; RUN/best names the best, the older of equal ones; a kill loses nothing.
. "$(dirname "$0")/lib.sh"
tiny_setup tied=false
features -o feats >/dev/null 2>err || { cat err; die features; }
tiny_chats 5 held.jsonl
held=(--set eval.interval=2 --set eval.held_prompts=held.jsonl --set eval.max_new_tokens=12 --set training.keep_checkpoints=9)
train=(sf-train eagle3 -c run.toml --draft draft0 --set training.max_steps=5)

"${train[@]}" --from feats -o plain >/dev/null 2>err || { cat err; die "without evaluations"; }
"${train[@]}" --from feats "${held[@]}" -o one >/dev/null 2>err || { cat err; die "with evaluations"; }
says "served acceptance length" "n = 5 prompts" "training_acceptance_rate"
[ "$(digest plain/latest)" = "$(digest one/latest)" ] || die "evaluations changed the weights"
[ "$(losses plain)" = "$(losses one)" ] || die "evaluations changed the losses"

# same RUN: the records and the best are those of one rank's run
same() {
  diff -r one/acceptance "$1/acceptance" || die "$1: other counts than one rank's"
  [ "$(readlink "$1/best")" = "$(readlink one/best)" ] || die "$1: another best"
}
for ranks in 2 3; do
  "${train[@]}" --from feats "${held[@]}" --set eval.batch=2 --ranks $ranks -o "many$ranks" >/dev/null 2>err || { cat err; die "$ranks ranks"; }
  same "many$ranks"
done
features 2>capture.err | "${train[@]}" --from - "${held[@]}" -o streamed >/dev/null 2>err || { cat err; die "from a stream"; }
same streamed

# Every second step and the last, each as sf-eval accept counts it; the best is the first of the greatest.
for step in 2 4 5; do
  sf-eval accept --target target --draft "one/step-$step" --prompts held.jsonl --set generate.max_new_tokens=12 --format json >"accept-$step.json" 2>err || { cat err; die accept; }
done
python3 - <<'P' || die "the records are not what sf-eval accept counts"
import json, os
steps = (2, 4, 5)
assert sorted(os.listdir("one/acceptance")) == [f"step-{s}.json" for s in steps]
lengths = {}
for step in steps:
    served, accept = json.load(open(f"one/acceptance/step-{step}.json")), json.load(open(f"accept-{step}.json"))
    for key in ("prompts", "new_tokens", "committed", "verifications", "acceptance_length"):
        assert served[key] == accept[key], (step, key, served, accept)
    assert served["tried"] == [p["tried"] for p in accept["positions"]] and served["accepted"] == [p["accepted"] for p in accept["positions"]]
    assert served["checkpoint"] == json.load(open(f"one/step-{step}/manifest.json"))["identity"] and served["prompts"] == 5
    lengths[step] = served["acceptance_length"]
print(lengths, os.readlink("one/best"))
assert os.readlink("one/best") == f"step-{max(steps, key=lambda s: (lengths[s], -s))}"
events = [r for r in map(json.loads, open("one/metrics.jsonl")) if r["event"] == "evaluation"]
assert [(e["step"], e["acceptance_length"]) for e in events] == list(lengths.items()), events
assert all("training_acceptance_rate" in e and e["prompts"] == 5 for e in events), events
end = [r for r in map(json.loads, open("one/metrics.jsonl")) if r["event"] == "end"][0]
for use in end["memory"]:
    print(use)
    assert use["peak_measured"] <= use["peak_predicted"], use
P

# published RUN: waits until its step 2 is there
published() {
  for _ in $(seq 600); do [ -e "$1/step-2/manifest.json" ] && return; sleep 0.02; done
  die "$1: nothing was published"
}
# again RUN: goes on, to the same end
again() {
  "${train[@]}" --from feats "${held[@]}" --resume auto -o "$1" >/dev/null 2>err || { cat err; die "$1: going on"; }
  [ "$(digest "$1/latest")" = "$(digest one/latest)" ] || die "$1: ended in other weights"
  [ "$(readlink "$1/best")" = "$(readlink one/best)" ] || die "$1: another best"
  python3 - "$1" <<'P' || die "$1: other counts"
import json, os, sys
for name in os.listdir("one/acceptance"):
    one, other = (json.load(open(f"{run}/acceptance/{name}")) for run in ("one", sys.argv[1]))
    one.pop("training"), other.pop("training", None)  # a window that was not computed again has no estimate
    assert one == other, (one, other)
P
}
# Killed or told to stop in the first evaluation: the checkpoint is there, its record is made on going on.
for signal in KILL TERM; do
  "${train[@]}" --from feats "${held[@]}" -o $signal >/dev/null 2>err &
  pid=$!
  published $signal
  kill -$signal $pid 2>/dev/null || true
  wait $pid 2>/dev/null || got=$?
  [ $signal = KILL ] || [ "$got" = 75 ] || die "TERM: exit $got, wanted 75"
  again $signal
done

# What cannot be: said by the plan and by the run.
for plan in "" --plan; do
  expect 78 "${train[@]}" --from feats --set eval.interval=2 -o never $plan
  says "eval.held_prompts names no file"
  expect 78 "${train[@]}" --from feats "${held[@]}" --set training.best=loss -o never $plan
  says "RUN/best is named by acceptance"
  expect 66 "${train[@]}" --from feats "${held[@]}" --set eval.held_prompts=nowhere.jsonl -o never $plan
  expect 78 "${train[@]}" --from feats --set eval.batch=4 -o never $plan
  says "eval.interval = 0"
done
# A target that was cut down to its tables trains a draft, and decodes nothing.
cp -r hf cut && python3 - <<'P'
import json, struct
with open("cut/model.safetensors", "rb") as f:
    head, body = json.loads(f.read(struct.unpack("<Q", f.read(8))[0])), f.read()
head["other"] = head.pop("model.layers.0.mlp.up_proj.weight")
text = json.dumps(head).encode()
open("cut/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
P
sf-init draft eagle3 --target cut -o of-cut >/dev/null 2>err || { cat err; die "a draft of tables"; }
sf-capture features --synthetic of-cut --n 12 -o feats-of-cut >/dev/null 2>err || { cat err; die "features for tables"; }
for plan in "" --plan; do
  expect 78 sf-train eagle3 -c run.toml --draft of-cut --from feats-of-cut "${held[@]}" -o never $plan
  says "decodes with the whole target" "lacks model.layers.0.mlp.up_proj.weight"
done
"${train[@]}" --from feats "${held[@]}" -o never --plan >out 2>err || { cat err; die "--plan"; }
grep -q "an evaluation, at most" out || die "the plan does not say what an evaluation takes"
