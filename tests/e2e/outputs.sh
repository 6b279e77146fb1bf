#!/usr/bin/env bash
# Outputs appear whole or not at all, and what was there stays; inputs that are no files are named, not waited for.
. "$(dirname "$0")/lib.sh"
tiny_setup
head -n 6 chats.jsonl | sed 's/, {"role": "assistant".*}\]/]/' >prompts.jsonl
gen() { sf-eval generate --target target --questions prompts.jsonl --set generate.max_new_tokens=4 "$@"; }
# A run of minutes: started in the background, ended by the case.
long() { exec sf-eval generate --target target --questions many.jsonl --set generate.batch=1 "$@"; }
absent() { local name; for name in "$@"; do [ ! -e "$name" ] && [ ! -L "$name" ] || die "$name was left behind"; done; }
rows() { grep -c '"completion"' "$1"; }
more_than() { [ "$(wc -l <"$2")" -gt "$1" ]; }
wait_for() { for _ in $(seq 400); do "$@" && return; sleep 0.05; done; die "never came: $*"; }

# The file of -o holds the answers, the result names it; the end of the positions ends an answer.
gen -o answers.jsonl >out 2>err || { cat err; die "generate -o"; }
[ "$(rows answers.jsonl)" = 6 ] && [ "$(cat out)" = answers.jsonl ] || die "answers.jsonl does not hold the answers"
gen --plan -o planned.jsonl >out 2>err || { cat err; die "generate --plan -o"; }
absent planned.jsonl planned.jsonl.partial
gen --limit 1 --set generate.max_new_tokens=100000 --set generate.ignore_eos=true -o long.jsonl >out 2>err || { cat err; die long; }
grep -q '"finish":"length"' long.jsonl || die "an answer to the last position did not end with length"

# One writer a file: the second one names the first; a killed one's half line goes, its rows stay.
python3 - <<'P'
import json
row = json.loads(open("prompts.jsonl").readline())
with open("many.jsonl", "w") as out:
    for i in range(4000):
        messages = [{"role": "user", "content": f"{row['messages'][0]['content']} {i}"}]
        out.write(json.dumps({"id": f"m{i}", "messages": messages}) + "\n")
P
long -o shared.jsonl >/dev/null 2>first.err & first=$!
wait_for grep -qs '"completion"' shared.jsonl.partial
expect 73 sf-capture regenerate --target target --prompts many.jsonl --set generate.batch=1 -o shared.jsonl
says "shared.jsonl is being written by sf-eval generate" "(pid $first"
kill -KILL $first; wait $first || true
printf '{"id": "torn' >>shared.jsonl.partial
kept=$(wc -l <shared.jsonl.partial)
long -o shared.jsonl >/dev/null 2>err & first=$!
wait_for more_than $((kept + 3)) shared.jsonl.partial
kill -TERM $first; got=0; wait $first || got=$?
[ $got = 75 ] && grep -q "answers are kept" err || { cat err; die "TERM while answering ended with $got"; }
absent shared.jsonl
python3 -c 'import json, sys; [json.loads(line) for line in open("shared.jsonl.partial")]' || die "a torn line stayed"

# A result file keeps what it held until the verb ends; TERM before anything was begun ends at once.
echo precious >acc.txt
mkfifo never
: >err  # what the last one said is not this one's
sf-eval accept -v --target target --draft draft0 --prompts many.jsonl -o acc.txt >/dev/null 2>err & first=$!
wait_for grep -qs "applied generate.batch" err; kill -TERM $first; got=0; wait $first || got=$?
[ $got = 143 ] && [ "$(cat acc.txt)" = precious ] || { cat err; die "accept: $got, $(cat acc.txt)"; }
says "stopped: " "prompts answered plainly"
sleep 20 | sf-train eagle3 -c run.toml --draft draft0 --from - -o waiting >/dev/null 2>err & first=$!
wait_for test -e waiting/.lock
kill -TERM $first; got=0; wait $first || got=$?
[ $got = 75 ] || { cat err; die "TERM while waiting for a handle ended with $got"; }
says "waiting for a stream's handle"; absent waiting
exec 9<>never
sf-init draft eagle3 --target target --draft-vocab 64 --data /dev/fd/9 -o made/piped >/dev/null 2>err & first=$!
sleep 1; kill -TERM $first; got=0; wait $first || got=$?
exec 9>&-
[ $got = 143 ] || { cat err; die "TERM while reading a pipe ended with $got"; }
[ -z "$(find . -maxdepth 2 -name '*piped*' -print -quit)" ] || die "a stopped sf-init draft left something behind"
sf-init draft eagle3 --target target --draft-vocab 64 --data <(cat chats.jsonl) -o piped >/dev/null 2>err || { cat err; die "chats of a pipe"; }

# Devices and FIFOs are written into, symbolic links followed, never replaced.
mkdir dv && mkfifo dv/fifo
cat dv/fifo >dv/read & first=$!
wait_for sf-shard inspect target -o dv/fifo 2>err  # until its reader has opened it
wait $first; [ -p dv/fifo ] && [ -s dv/read ] || die "the FIFO's reader got nothing"
expect 73 sf-shard inspect target -o dv/fifo; says "nobody reads"
ln -s real dv/link && echo old >dv/real
sf-shard inspect target -o dv/link 2>err && [ -L dv/link ] && cmp -s dv/real dv/read || die "-o onto a link"
ln -s loop dv/loop; expect 73 sf-shard inspect target -o dv/loop; says loop
ln -s ../target/config.json dv/published; expect 73 sf-shard inspect target -o dv/published; says "part of what was published"
if mknod dv/null c 1 3 2>/dev/null && echo >dv/null; then
  sf-shard inspect target -o dv/null 2>err && [ -c dv/null ] || die "a device was replaced"
fi

# What is no regular file, or a link to nothing, is named.
for part in config.json tokenizer.json tokenizer_config.json; do
  rm -rf odd && cp -r hf odd && rm odd/$part && mkfifo odd/$part
  expect 66 timeout 20 sf-init model odd -o x; says "$part is not a regular file"; absent x
  rm odd/$part && ln -s nothing odd/$part
  expect 66 sf-init model odd -o x; says "$part"; absent x
  rm odd/$part && ln -s $part odd/$part
  expect 66 sf-init model odd -o x; says "$part"; absent x
done
expect 66 timeout 20 sf-init draft eagle3 --target target --draft-vocab 64 --data never -o x; says "never is not a regular file"
expect 66 sf-eval accept --target target --draft chats.jsonl --prompts prompts.jsonl; says "chats.jsonl is a file"
expect 66 sf-shard verify chats.jsonl; says "chats.jsonl is a file"

# A failure takes away what it made on the way; ".." makes nothing; a refused output is 73 for every verb.
expect 66 sf-init draft eagle3 --target target --draft-vocab 64 --data nope -o newq/b/a; absent newq
expect 66 sf-init model nope -o newq/a; absent newq
expect 73 sf-init model hf -o target/sub/../x; absent target/sub target/x
# Nothing new goes into what was published.
features -o feats0 >/dev/null 2>err || { cat err; die features; }
for dir in target feats0; do
  for verb in "sf-init model hf" "sf-init draft eagle3 --target target" "sf-shard export target --to hf" "sf-shard reshard target" \
    "sf-shard inspect target" "sf-eval generate --target target --questions prompts.jsonl" "sf-capture features --synthetic qwen3-8b --n 1" \
    "sf-capture features --target target --draft draft0 --data chats.jsonl" "sf-train sft --target target --data chats.jsonl"; do
    for name in new sub/new; do expect 73 $verb -o $dir/$name; says "part of what was published"; absent $dir/new $dir/sub; done
  done
done
for kib in 0 1; do
  expect 74 bash -c "ulimit -f $kib; trap '' XFSZ; exec sf-init model hf -o newq/full"; absent newq
done
expect 74 bash -c "ulimit -f 0; trap '' XFSZ; exec sf-eval generate --target target --questions prompts.jsonl -o c2.jsonl"
absent c2.jsonl c2.jsonl.partial
expect 74 bash -c "ulimit -f 0; trap '' XFSZ; exec sf-capture features -c run.toml --target target --draft draft0 --data chats.jsonl -o f2"
absent f2 f2.partial
features -o feats >/dev/null 2>err || { cat err; die features; }
expect 74 bash -c "ulimit -f 0; trap '' XFSZ; exec sf-train eagle3 -c run.toml --draft draft0 --from feats -o r2"; absent r2
: >plain
expect 73 sf-init model hf -o plain/a
expect 73 sf-capture regenerate --target target --prompts prompts.jsonl -o plain/a
expect 73 sf-train eagle3 -c run.toml --draft draft0 --from feats -o plain/a
expect 73 sf-shard inspect target -o plain/a

# Reasons of void rows replace reasons, and nothing else.
{ cat chats.jsonl; echo '{"id":"odd","messages":[{"role":"user"}]}'; } >mixed.jsonl
echo "my own notes" >mixed.jsonl.rejected
expect 73 sf-capture features -c run.toml --target target --draft draft0 --data mixed.jsonl -o f3; says "mixed.jsonl.rejected"; absent f3
expect 73 sf-capture features -c run.toml --target target --draft draft0 --data chats.jsonl --rejected run.toml -o f3; absent f3
rm mixed.jsonl.rejected
for _ in 1 2; do
  rm -rf f3
  expect 0 sf-capture features -c run.toml --target target --draft draft0 --data mixed.jsonl -o f3
done

# Names are shown, not obeyed; JSON stays JSON.
expect 66 sf-init model $'no\nsf-init[0]: all\033[31m is well' -o x; says 'no\nsf-init[0]: all\x1b[31m is well'
odd=$'pub\xff'; sf-init model hf -o "$odd" --format json 2>/dev/null >out || die "a name that is no UTF-8"
python3 -c 'import json; json.loads(open("out", "rb").read().decode("utf-8"))["path"]' || die "the path is no JSON"

# Two ranks say a difference once, and their state once.
sf-train eagle3 -c run.toml --draft draft0 --from feats --ranks 2 -o run --set training.epochs=1 >/dev/null 2>err || { cat err; die run; }
env --default-signal=QUIT \
  sf-train eagle3 -c run.toml --draft draft0 --from feats --ranks 2 -o run --resume auto --set training.epochs=10000 \
  --set training.learning_rate=2e-3 >/dev/null 2>err & first=$!
wait_for grep -qs "learning_rate was" err
wait_for more_than 8 run/metrics.jsonl
kill -QUIT $first; wait_for grep -qs "state:" err
kill -TERM $first; got=0; wait $first || got=$?
[ $got = 75 ] || { cat err; die "two ranks ended with $got"; }
[ "$(grep -c "learning_rate was" err)" = 1 ] || { cat err; die "a difference was told twice"; }
[ "$(grep -c "state:" err)" = 1 ] && [ "$(grep -cE "warning: rank [01] " err)" = 2 ] || { cat err; die "the state was told again"; }

# An output never takes the place of an input, nor of a file that is not its own.
cp chats.jsonl precious.jsonl
expect 73 sf-capture features -c run.toml --target target --draft draft0 --data precious.jsonl --handle-file precious.jsonl
says "holds no handle"; cmp chats.jsonl precious.jsonl || die "the data were replaced by a handle"
mkdir shards
for i in 0 1; do
  sf-eval score "$here/../../man/examples/aime/answers.jsonl" --questions "$here/../../man/examples/aime/questions.jsonl" \
    --shard $i/2 -o shards/$i.jsonl >/dev/null 2>err || { cat err; die "shard $i"; }
done
for out in shards/0.jsonl shards/new.jsonl; do
  expect 73 sf-eval merge shards -o $out; says "would be part of it"
done
sf-eval merge shards -o merged.jsonl >/dev/null 2>err || { cat err; die merge; }
expect 73 sf-eval report merged.jsonl -o merged.jsonl
sf-eval compare merged.jsonl --against merged.jsonl -o compared >/dev/null 2>err || { cat err; die "compare -o"; }
[ -s compared ] || die "compare -o wrote nothing"

# A stop in the middle of a checkpoint leaves nothing of it.
for verb in "sf-shard export target --to hf" "sf-shard reshard target" "sf-init model hf" "sf-init draft eagle3 --target target" \
  "sf-shard import hf"; do
  for wait in 0.005 0.02 0.04; do
    rm -rf stopped
    $verb -o stopped >/dev/null 2>err & pid=$!
    sleep $wait; kill -TERM $pid 2>/dev/null || true
    wait $pid || true
    [ -z "$(find . -maxdepth 1 -name '.stopped.tmp*' -print -quit)" ] || die "$verb left a half-written directory"
  done
done
