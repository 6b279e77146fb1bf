#!/usr/bin/env bash
# --plan predicts what a run then measures, without LibTorch and without touching anything; a plan that differs between
# ranks is refused; an option that is given is applied on every launch path, and its loss is noticed.
. "$(dirname "$0")/lib.sh"
tiny_setup tied=false
sf-init draft dflash --target target --set draft.hidden_layers=2 --set draft.block_size=4 -o dflash0 >/dev/null 2>&1
sf-capture features -c run.toml --target target --draft dflash0 --data chats.jsonl -o features-dflash >/dev/null 2>&1
features -o features >/dev/null 2>err || { cat err; die features; }
train=(sf-train eagle3 -c run.toml --draft draft0 --set training.max_steps=2)

before=$(find . -type f -newermt 2000-01-01 | sort | xargs sha256sum | sha256sum)
for verb in "${train[*]} --from features -o never --ranks 2" \
  "sf-train dflash -c run.toml --draft dflash0 --from features-dflash -o never --ranks 2" \
  "sf-train sft -c run.toml --target target --data chats.jsonl -o never --ranks 2" \
  "sf-capture features --synthetic qwen3-8b --n 4 -o never" "sf-capture features --target target --draft dflash0 --data chats.jsonl" \
  "sf-init model target -o never" "sf-init draft eagle3 --target target --draft-vocab 64 --data chats.jsonl -o never" "sf-shard inspect target" \
  "sf-shard verify target" "sf-capture inspect features" "sf-capture features --target target --draft draft0 --data chats.jsonl" \
  "sf-eval generate --target target --prompts chats.jsonl" "sf-eval accept --target target --draft draft0 --prompts chats.jsonl" \
  "sf-capture regenerate --target target --prompts chats.jsonl -o never.jsonl"; do
  # shellcheck disable=SC2086
  LD_DEBUG=files $verb --plan >plan.out 2>plan.err || { grep ": error" plan.err; die "$verb --plan"; }
  [ -s plan.out ] || die "$verb --plan says nothing"
  ! grep -q libtorch plan.err || die "$verb --plan opens LibTorch"
  rm plan.out plan.err
done
[ "$before" = "$(find . -type f -newermt 2000-01-01 | sort | xargs sha256sum | sha256sum)" ] || die "--plan touched a file"

for ranks in 1 2 3; do
  "${train[@]}" --from features -o never --ranks $ranks --plan --format json >plan.$ranks.json 2>err || { cat err; die "plan $ranks"; }
  "${train[@]}" --from features -o run.$ranks --ranks $ranks >out 2>err || { cat err; die "run $ranks"; }
  says "memory of rank $((ranks - 1)), MiB"
  python3 - $ranks <<'P' || die "the plan of $ranks ranks does not hold"
import json, sys
ranks = int(sys.argv[1])
plan = json.load(open(f"plan.{ranks}.json"))
end = [r for r in map(json.loads, open(f"run.{ranks}/metrics.jsonl")) if r.get("event") == "end"][-1]
assert len(end["memory"]) == ranks == len(plan["ranks"])
for want, use in zip(plan["ranks"], end["memory"]):
    print(ranks, want["rank"], use)
    engine = want["masters"] + want["accumulators"] + want["moments"] + want["frozen"] + want["slots"] + want["sums"]
    assert use["at_rest_measured"] == use["at_rest_predicted"] == engine, (engine, use)
    assert use["peak_measured"] <= use["peak_predicted"] <= 1.03 * use["peak_measured"], use
    assert use["peak_predicted"] <= want["peak_allocated"], (want, use)
    assert use["resident_measured"] <= 1.03 * use["resident_predicted"] + (16 << 20), use
P
done

shard=(--set training.shard_frozen_tables=true)
applied="applied training.shard_frozen_tables=true to 0 tables"
stream() { features 2>capture.err; }
offline() { "${train[@]}" "${shard[@]}" --from features -o "$1"; }
ranks() { "${train[@]}" "${shard[@]}" --from features --ranks 2 -o "$1"; }
pipe() { stream | "${train[@]}" "${shard[@]}" --from - -o "$1"; }
launcher() { RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 "${train[@]}" "${shard[@]}" --from features -o "$1"; }
for path in offline ranks pipe launcher; do
  expect 0 $path "with.$path"
  says "$applied"
  if sf-train --build-info | grep -q '"faults": *true'; then
    SF_FAULT=tool.drop_option expect 78 $path "without.$path"
    says "used by nothing in this run: training.shard_frozen_tables"
  fi
done
echo "plans hold for 1, 2 and 3 ranks; no option is lost on 4 launch paths"
