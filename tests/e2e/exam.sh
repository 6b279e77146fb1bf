#!/usr/bin/env bash
# sf-eval generate: answers are a function of target, question, sample and seed, whatever the batch, the shards, the
# order, a draft under greedy, or the byte at which a run was killed; what was asked stands in front of them.
. "$(dirname "$0")/lib.sh"
tiny_setup
python3 - <<'P'
import json
rows = [{"ID": "2024-I-1", "Problem": "the cat runs", "Answer": 204}, {"id": 2, "question": "sand and land", "answer": "025"},
        {"problem_idx": 3, "problem": "thunder", "answer": 5, "problem_type": ["x"]},
        {"id": "box", "problem": "an inner theory", "solution": "so \\boxed{33}."},
        {"prompt": [{"role": "user", "content": "on other dogs"}], "reward_model": {"ground_truth": "34"}},
        {"id": "copy", "question": "Sand and land.", "answer": "25"}, {"id": "last", "prompt": "then", "gold": "7"}]
open("set.jsonl", "w").write("".join(json.dumps(row) + "\n" for row in rows))
P
sampled=(--samples 3 --set generate.temperature=1 --set generate.top_p=0.95 --set generate.max_new_tokens=24)
gen() { sf-eval generate --target target --questions set.jsonl "$@"; }
field() { python3 -c 'import json, sys
for line in open(sys.argv[1]):
    row = json.loads(line)
    print(eval(sys.argv[2], {"row": row, "facts": row.get("facts", {})})) if "facts" in sys.argv[2] or "id" in row else None' "$@"; }

gen "${sampled[@]}" -o one.jsonl >out 2>err || { cat err; die "generate"; }
says "7 rows hold 6 questions; 1 copies are merged"
[ "$(cat out)" = one.jsonl ] && [ "$(wc -l <one.jsonl)" = 19 ] || die "wanted facts and 18 answers"
for batch in 1 64; do
  gen "${sampled[@]}" --set generate.batch=$batch -o batch$batch.jsonl >/dev/null 2>err || { cat err; die "batch $batch"; }
  cmp one.jsonl batch$batch.jsonl || die "batch $batch gives other bytes"
done
gen "${sampled[@]}" >stdout.jsonl 2>err || { cat err; die "standard output"; }
cmp one.jsonl stdout.jsonl || die "standard output differs from the file"
grep -v reward_model set.jsonl | tac >backwards.jsonl  # a row without an id is named by its line
sf-eval generate --target target --questions backwards.jsonl "${sampled[@]}" >backwards 2>err || { cat err; die backwards; }
cmp <(grep -E '"id":"(2024-I-1|3|box|last)"' one.jsonl | sort) <(grep -E '"id":"(2024-I-1|3|box|last)"' backwards | sort) ||
  die "another order gives other answers"
for i in 0 1 2 3; do gen "${sampled[@]}" --shard $i/4 -o part$i >/dev/null 2>err || { cat err; die "shard $i"; }; done
cmp <(tail -n +2 one.jsonl) <(tail -qn +2 part0 part1 part2 part3) || die "shards give other bytes"
gen "${sampled[@]}" --set generate.seed=43 >other.jsonl 2>err || { cat err; die "another seed"; }
cmp -s one.jsonl other.jsonl && die "the seed changes nothing"

# Killed at any byte, the same line ends with the same bytes; another line does not go on with it.
long=(--samples 2 --set generate.temperature=1 --set generate.batch=1 --set generate.ignore_eos=true --set generate.max_new_tokens=400)
gen "${long[@]}" -o whole >/dev/null 2>err || { cat err; die whole; }
sf-eval generate --target target --questions set.jsonl "${long[@]}" -o killed >/dev/null 2>&1 & pid=$!
for _ in $(seq 2000); do [ "$(grep -c completion killed.partial 2>/dev/null || true)" -ge 2 ] 2>/dev/null && break; sleep 0.005; done
kill -KILL $pid; wait $pid || true
[ -e killed.partial ] && [ ! -e killed ] || die "it was not killed on the way"
cp killed.partial at-kill
expect 76 gen "${sampled[@]}" -o killed; says "was begun with other settings"
size=$(stat -c %s at-kill)
for cut in 0 30 $((size / 2)) "$size"; do
  rm -f killed && head -c "$cut" at-kill >killed.partial
  gen "${long[@]}" -o killed >/dev/null 2>err || { cat err; die "after a kill at byte $cut"; }
  cmp whole killed || die "after a kill at byte $cut the bytes differ"
  [ ! -e killed.partial ] || die "killed.partial was left"
done
says "found already"

# Several ranks share the answers: the same bytes, once, and from what others had finished when they were killed.
for ranks in 2 3; do
  gen "${sampled[@]}" --ranks $ranks -o ranks$ranks >out 2>err || { cat err; die "$ranks ranks"; }
  cmp one.jsonl ranks$ranks || die "$ranks ranks give other bytes"
  [ "$(cat out)" = ranks$ranks ] && [ "$(ls ranks$ranks*)" = ranks$ranks ] || { ls; die "$ranks ranks leave more than a file"; }
  says "18 answers by $ranks ranks (0 found already)"
  [ "$(grep -c 'copies are merged' err)" = 1 ] || { cat err; die "a warning is not told once"; }
done
sf-eval generate --target target --questions set.jsonl "${long[@]}" --ranks 2 -o shared >/dev/null 2>&1 & pid=$!
for _ in $(seq 2000); do [ "$(cat shared.partial.1 2>/dev/null | grep -c completion)" -ge 2 ] && break; sleep 0.005; done
kill -KILL "$(pgrep -P $pid | tail -n 1)"; got=0; wait $pid || got=$?
[ $got = 69 ] && [ -e shared.partial ] && [ -e shared.partial.1 ] && [ ! -e shared ] || { ls; die "a killed rank ends with $got"; }
cp shared.partial shared3.partial && cp shared.partial.1 shared3.partial.1
expect 76 gen "${sampled[@]}" -o shared; says "was begun with other settings"
for ranks in 1 3; do
  rm -f shared && cp shared3.partial shared.partial && cp shared3.partial.1 shared.partial.1
  gen "${long[@]}" --ranks $ranks -o shared >/dev/null 2>err || { cat err; die "$ranks ranks after a kill"; }
  cmp whole shared && [ ! -e shared.partial ] && [ ! -e shared.partial.1 ] || { ls; die "$ranks ranks after a kill"; }
  grep -Eq '\(([2-9]|1[0-9]) found already' err || { cat err; die "what rank 1 had finished was made again"; }
done
rm shared; sf-eval generate --target target --questions set.jsonl "${long[@]}" --ranks 2 -o shared >/dev/null 2>err & pid=$!
for _ in $(seq 2000); do [ "$(cat shared.partial.1 2>/dev/null | grep -c completion)" -ge 1 ] && break; sleep 0.005; done
kill -TERM $pid; got=0; wait $pid || got=$?
[ $got = 75 ] && [ "$(ls shared*)" = "$(printf 'shared.partial\nshared3.partial\nshared3.partial.1')" ] ||
  { ls; cat err; die "TERM ends two ranks with $got"; }
gen "${long[@]}" --ranks 2 -o shared >/dev/null 2>err && cmp whole shared || { cat err; die "after TERM"; }
for rank in 0 1; do  # as torchrun starts them, over the network
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 9000)) \
    timeout 100 sf-eval generate --target target --questions set.jsonl "${sampled[@]}" --set comm.group=gloo -o netted >/dev/null 2>err.$rank &
done
wait
cmp one.jsonl netted && [ "$(ls netted*)" = netted ] || { cat err.0 err.1; die "two processes give other bytes"; }
expect 64 gen --ranks 2; says "give it as -o FILE"
expect 73 gen --ranks 2 -o shared; [ "$(grep -c error: err)" = 1 ] || { cat err; die "an error is told twice"; }

# A draft gives greedy's tokens.
gen --set generate.max_new_tokens=24 >plain 2>err || { cat err; die plain; }
gen --set generate.max_new_tokens=24 --draft draft0 >drafted 2>err || { cat err; die drafted; }
cmp <(field plain 'row["ids"]') <(field drafted 'row["ids"]') || die "a draft gives other tokens"
[ "$(field drafted 'facts.get("draft_tokens")' | sed -n 1p)" = 3 ] || die "the facts do not name the draft"

# A stop text ends an answer wherever tokens part it; what stands before it counts. A stop id is a token.
stop=$(python3 -c 'import json
rows = [json.loads(line).get("ids", []) for line in open("plain")]  # two letters that two tokens of one byte make
print(next(chr(a) + chr(b) for ids in rows for a, b in zip(ids, ids[1:]) if max(a, b) < 123 and (chr(a) + chr(b)).isalpha()))')
gen --set generate.max_new_tokens=24 --set "generate.stop=['''$stop''']" >stopped 2>err || { cat err; die "stop text"; }
python3 - "$stop" <<'P' || die "stop texts"
import json, sys
rows = lambda name: [json.loads(line) for line in open(name)][1:]
stopped = 0
for free, cut in zip(rows("plain"), rows("stopped")):
    text, at = free["completion"], free["completion"].find(sys.argv[1])
    assert cut["completion"] == (text if at < 0 else text[:at]), (free, cut)
    assert cut["finish"] == (free["finish"] if at < 0 else "stop") and cut["tokens"] == len(cut["ids"]) <= free["tokens"]
    stopped += at >= 0
assert stopped > 0
P
id=$(field plain 'row["ids"][3]' | sed -n 1p)
gen --set generate.max_new_tokens=24 --set "generate.stop_ids=[$id]" >stopped 2>err || { cat err; die "stop id"; }
field stopped 'row["finish"] == "stop" and row["ids"][-1] == '"$id" >ended
[ "$(head -n 1 ended)" = True ] || die "a stop id does not end an answer"

# What is sent: the system prompt, the words around a question, thinking on or off where the template has it.
python3 - <<'P'
import json
config = json.load(open("hf/tokenizer_config.json"))
config["chat_template"] += "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>off' }}{% endif %}"
json.dump(config, open("hf/tokenizer_config.json", "w"))
P
sf-init model hf -o thinker >/dev/null 2>err || { cat err; die thinker; }
think() { sf-eval generate --target thinker --questions set.jsonl --limit 2 --set generate.max_new_tokens=2 "$@" >out 2>err || { cat err; die "$*"; }; }
tokens() { field out 'row["prompt_tokens"]' | sed -n 1p; }
think; plain=$(tokens)
think --set eval.thinking=on; [ "$(tokens)" = "$plain" ] || die "thinking on"
think --set eval.thinking=off; [ "$(tokens)" = $((plain + 8)) ] || die "thinking off: $(tokens), $plain"
think --set 'eval.prompt="{problem}!!"'; [ "$(tokens)" = $((plain + 2)) ] || die "eval.prompt: $(tokens), $plain"
think --set 'eval.system="ab"'; [ "$(tokens)" = $((plain + 2 + 10)) ] || die "eval.system: $(tokens), $plain"
expect 78 gen --set eval.thinking=on; says "0 questions: the chat template has no enable_thinking"
expect 78 gen --set 'eval.prompt="Solve."'; says "wanted {problem} in it once"
expect 64 gen --limit 1 --shard 0/2; says "contradict"
expect 78 gen --set speculation.draft_tokens=2; says "0 drafts"
gen --samples 2 --limit 1 --set generate.max_new_tokens=2 >out 2>err || { cat err; die greedy; }
says "the 2 answers to a question will be equal"

# The answers are scored as they are, with what was asked beside the verdicts.
sf-eval score one.jsonl --questions set.jsonl -o verdicts >out 2>err || { cat err; die score; }
grep -q "6, 3 answers each" out || { cat out; die "score"; }
for word in '"target":"' '"temperature":1' '"tokenizer":"' '"template":"' '"prompts":"' '"samples":3'; do
  head -n 1 verdicts | grep -qF "$word" || die "the verdicts do not say $word"
done
