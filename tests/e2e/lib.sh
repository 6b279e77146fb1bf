# shellcheck shell=bash
# Shared by the end-to-end tests: a tiny target, tiny chats, and words to check with. SF_BIN: the five commands' folders.
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PATH=$SF_BIN:$PATH SF_COLOR=never
work=$(mktemp -d "${TMPDIR:-/tmp}/sf-e2e.XXXXXX")
cleanup() {
  local rc=$?
  # Nothing of a test outlives it: every process that carries this folder in its command line goes too.
  pkill -KILL -f "$work" 2>/dev/null || true
  rm -rf "$work"
  exit "$rc"
}
trap cleanup EXIT
cd "$work"

die() { echo "FAILED: $*" >&2; exit 1; }

# expect STATUS COMMAND...: the command must end with exactly this status; stderr is kept in ./err
expect() {
  local want=$1 got=0
  shift
  "$@" >out 2>err || got=$?
  [ "$got" = "$want" ] || { cat err >&2; die "exit $got, wanted $want: $*"; }
}

# says TEXT...: ./err must contain each text
says() {
  local text
  for text in "$@"; do grep -qF -- "$text" err || { cat err >&2; die "stderr does not say: $text"; }; done
}

tiny_chats() {  # tiny_chats N FILE
  python3 - "$1" "$2" <<'P'
import json, random, sys
rng = random.Random(5)
words = "the cat and dog in on an inner theory thunder runs over other then land sand".split()
with open(sys.argv[2], "w") as out:
    for i in range(int(sys.argv[1])):
        say = lambda n: " ".join(rng.choice(words) for _ in range(n))
        chat = [{"role": "user", "content": say(rng.randint(2, 6))}, {"role": "assistant", "content": say(rng.randint(4, 14))}]
        out.write(json.dumps({"id": f"c{i}", "messages": chat}) + "\n")
P
}

tiny_setup() {  # target, chats.jsonl, draft0, run.toml
  python3 "$here/../support/make_tiny_model.py" hf "$@"
  sf-init model hf -o target >/dev/null 2>&1
  tiny_chats 30 chats.jsonl
  sf-init draft eagle3 --target target --draft-vocab 64 --data chats.jsonl -o draft0 >/dev/null 2>&1
  cat >run.toml <<'T'
[training]
learning_rate = 1e-3
unroll = 3
micro_batches = 12
batch_size = 1
epochs = 4
log_every = 1
seed = 7

[capture]
feature_dtype = "fp32"
T
}

features() { sf-capture features -c run.toml --target target --draft draft0 --data chats.jsonl "$@"; }

digest() { sha256sum "$1/model.safetensors" | cut -d' ' -f1; }  # digest CHECKPOINT

losses() { python3 -c '
import json, sys
for line in open(sys.argv[1]):
    record = json.loads(line)
    if "loss" in record: print(record["step"], repr(record["loss"]), repr(record["grad_norm"]))' "$1/metrics.jsonl"; }
