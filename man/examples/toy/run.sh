#!/usr/bin/env bash
# The main job in seconds, on a made-up model of thirty thousand weights: how the commands fit together, with no download
# and nothing learned that anybody needs. usage: run.sh [DIR]     after ./dev build; writes DIR, by default ./toy
set -Eeuo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
PATH=${SF_BIN:-$root/build/bin}:$PATH
out=${1:-toy}
[ ! -e "$out" ] || { echo "toy: $out exists; remove it or name another directory" >&2; exit 73; }
mkdir -p "$out" && cd "$out"
python3 "$root/tests/support/make_tiny_model.py" model
head -n 12 "$root/man/examples/demo/prompts.jsonl" >prompts.jsonl
head -n 4 "$root/man/examples/demo/held.jsonl" >held.jsonl
cat >toy.toml <<'T'
[training]
learning_rate = 3e-3
unroll = 3
micro_batches = 4
epochs = 8

[generate]
max_new_tokens = 48
T
set -x
sf-init model model -o target
sf-capture regenerate -c toy.toml --target target --prompts prompts.jsonl -o chats.jsonl
sf-init draft eagle3 --target target --draft-vocab 64 --data chats.jsonl -o draft0
sf-eval accept -c toy.toml --target target --draft draft0 --prompts held.jsonl --format json -o before.json
sf-capture features --target target --draft draft0 --data chats.jsonl |
  sf-train eagle3 -c toy.toml --draft draft0 --from - --ranks 2 -o run
sf-eval accept -c toy.toml --target target --draft run/latest --prompts held.jsonl --format json -o after.json
sf-eval report run -o report.html
