#!/usr/bin/env bash
# A curve of checkpoints from start to page: a target is tuned on small sums and asked 60 others, four times each.
# usage: run.sh TARGET [DIR]     after ./dev build; TARGET as sf-init model makes it; writes DIR, by default ./sums
set -Eeuo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
PATH=${SF_BIN:-$root/build/bin}:$PATH
target=$(cd "${1:?usage: run.sh TARGET [DIR]}" && pwd)
out=${2:-sums}
[ ! -e "$out" ] || { echo "sums: $out exists; remove it or name another directory" >&2; exit 73; }
mkdir -p "$out" && cd "$out"
python3 - <<'P'
import json, random
rng = random.Random(1)
sums = rng.sample([(a, b) for a in range(2, 30) for b in range(2, 30)], 300)
ask = "What is {} plus {}?"
with open("questions.jsonl", "w") as out:
    for i, (a, b) in enumerate(sums[:60]):
        out.write(json.dumps({"id": f"sum-{i + 1}", "problem": ask.format(a, b), "answer": str(a + b)}) + "\n")
with open("chats.jsonl", "w") as out:
    for a, b in sums[60:]:
        answer = {"role": "assistant", "content": f"{a} + {b} = \\boxed{{{a + b}}}"}
        out.write(json.dumps({"messages": [{"role": "user", "content": ask.format(a, b)}, answer]}) + "\n")
P
cat >sums.toml <<'T'
[training]
learning_rate = 1e-4
micro_batches = 12
max_steps = 16
checkpoint_every = 8

[generate]
max_new_tokens = 20
batch = 48
temperature = 0.7
top_p = 0.95

[eval]
samples = 4

[target]
compute_dtype = "bf16"

[engine]
compute_dtype = "bf16"
T
set -x
sf-train sft -c sums.toml --target "$target" --data chats.jsonl -o run
sf-eval checkpoints run -c sums.toml --target "$target" --questions questions.jsonl -o evals
sf-eval report evals -o sums.html
