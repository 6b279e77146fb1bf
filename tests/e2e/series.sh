#!/usr/bin/env bash
# sf-eval checkpoints and watch: verdicts of every checkpoint of a run, made once, whole or in parts with the same rows.
. "$(dirname "$0")/lib.sh"
tiny_setup
cp "$here/../../man/examples/aime/questions.jsonl" .
printf '[generate]\nmax_new_tokens = 16\ntemperature = 1\n[eval]\nsamples = 2\n' >eval.toml
train() { sf-train sft --target target --data chats.jsonl --set training.checkpoint_every=1 --set training.keep_checkpoints=9 \
  --set training.max_steps=3 --set training.learning_rate=1e-2 "$@"; }
series() { sf-eval checkpoints tuned -c eval.toml --questions questions.jsonl "$@"; }
train -o tuned >/dev/null 2>err || { cat err; die train; }

series --target target -o evals --plan >out 2>err || { cat err; die plan; }
[ "$(grep -c 'to do' out)" = 4 ] && [ ! -e evals ] || { cat out; die "the plan"; }
series --target target -o evals >out 2>err || { cat err; die checkpoints; }
[ "$(wc -l <out)" = 4 ] && [ "$(sed 's/-[0-9a-f]*.jsonl//' out | xargs)" = "evals/step-0 evals/step-1 evals/step-2 evals/step-3" ] ||
  { cat out; die "the verdicts are not named"; }
sf-eval report evals >table 2>err || { cat err; die report; }
for step in 0 1 2 3; do grep -q "^step $step " table || { cat table; die "no line of step $step"; }; done
before=$(sha256sum evals/*.jsonl evals/answers/*.jsonl)
TIMEFORMAT='%U %S'
{ time series --nth 1 -o evals >out 2>err; } 2>spent || { cat err; die "again"; }
says "step 2: done already"
awk '{ exit !($1 + $2 < 0.25) }' spent || { cat spent; die "what is done takes a quarter of a second"; }
LD_DEBUG=files LD_DEBUG_OUTPUT=opened series --nth 1 -o evals >out 2>err || { cat err; die "again"; }
cat opened.* | grep -q libshardforge.so || die "the loader did not tell"
! cat opened.* | grep -q libtorch || die "LibTorch was opened for what is done"
series --target target -o evals --plan 2>err | grep -c 'done ' | grep -qx 4 || die "the plan does not see what is done"
expect 66 series --nth 3 -o evals; says "has 3 checkpoints, counted from 0"
expect 66 sf-eval checkpoints nowhere --questions questions.jsonl -o evals
echo '{"id":1,"problem":"p"}' >goldless.jsonl
expect 65 sf-eval checkpoints tuned --questions goldless.jsonl -o evals
says "has no gold"
[ "$before" = "$(sha256sum evals/*.jsonl evals/answers/*.jsonl)" ] || die "what was done was made again"

# A re-evaluation stands beside its step; the headline stays the original's.
cp -r evals beside && cp evals/answers/step-2-*.jsonl other.jsonl
sf-eval score other.jsonl --questions questions.jsonl --step 3 --again -o beside/again.jsonl >/dev/null 2>err || { cat err; die again; }
sf-eval report beside -o page.html >table 2>err || { cat err; die "report of a re-evaluation"; }
[ "$(grep -o '^step 3 again\|^step 3' table | xargs)" = "step 3 step 3 again" ] || { cat table; die "the two do not stand side by side"; }
grep -q '4 checkpoints, 1 evaluated again' page.html && grep -q 'pass@1, step 3 (95' page.html || die "the page's headline is not the original's"

# In parts: the last one merges, with the rows of the whole.
for part in 1 0; do series --nth 2 --shard $part/2 -o parts >out 2>err || { cat err; die "part $part"; }; done
[ "$(cat out)" = "$(ls parts/*.jsonl)" ] || { cat out; die "the parts were not merged"; }
cmp <(tail -n +2 parts/step-3-*.jsonl) <(tail -n +2 evals/step-3-*.jsonl) || die "parts give other rows"

# More parts than questions: the empty ones are made and merged too.
head -n 1 questions.jsonl >one.jsonl
for part in 0 1; do
  sf-eval checkpoints tuned -c eval.toml --questions one.jsonl --nth 2 --shard $part/2 -o few >out 2>err || { cat err; die "part $part of one question"; }
done
[ "$(cat out)" = "$(ls few/*.jsonl)" ] && [ "$(wc -l <out)" = 1 ] || { cat out; die "an empty part was not merged"; }

# Watching from before the run begins: the same verdicts, each once, and an end of its own.
sf-eval watch watched -c eval.toml --questions questions.jsonl -o seen --idle 8 >paths 2>watch.err & pid=$!
train -o watched >/dev/null 2>err || { cat err; die "train beside watch"; }
wait $pid || { cat watch.err; die "watch ended with $?"; }
[ "$(sort -u paths | wc -l)" = 3 ] && [ "$(wc -l <paths)" = 3 ] || { cat paths; die "watch did not make each once"; }
for step in 1 2 3; do
  cmp <(tail -n +2 seen/step-$step-*.jsonl) <(tail -n +2 evals/step-$step-*.jsonl) ||
    die "watch gives other verdicts of step $step"
done
sf-eval watch watched -c eval.toml --questions questions.jsonl -o seen >/dev/null 2>err & pid=$!
for _ in $(seq 400); do grep -qs "step 3: done already" err && break; sleep 0.05; done
kill -TERM $pid; got=0; wait $pid || got=$?
[ $got = 75 ] || { cat err; die "TERM while watching ended with $got"; }

# Adapters answer with their target, as generate --adapter does.
sf-init lora target -o adapter0 >/dev/null 2>err || { cat err; die lora; }
sf-train sft --target target --adapter adapter0 --data chats.jsonl --set training.checkpoint_every=1 --set training.max_steps=2 \
  --set training.learning_rate=1e-1 -o adapted >/dev/null 2>err || { cat err; die adapted; }
ours=(sf-eval checkpoints adapted -c eval.toml --questions questions.jsonl -o adapters)
expect 64 "${ours[@]}"; says "is an adapter, which answers beside its target: give --target DIR"
expect 0 "${ours[@]}" --target target
[ "$(ls adapters/step-*.jsonl | wc -l)" = 3 ] || { ls adapters; die "two adapters and their target"; }
cmp adapters/answers/step-0-*.jsonl evals/answers/step-0-*.jsonl || die "step 0 is not the target"
expect 0 sf-eval generate --target target --adapter adapted/step-2 -c eval.toml --questions questions.jsonl -o by-hand.jsonl
cmp adapters/answers/step-2-*.jsonl by-hand.jsonl || die "an adapter of a run gives other answers than generate --adapter"
! cmp -s <(tail -n +2 by-hand.jsonl) <(tail -n +2 adapters/answers/step-0-*.jsonl) || die "the adapter changes nothing"
sf-eval report adapters -o page.html >table 2>err || { cat err; die "report of adapters"; }
grep -q '>adapter<\|adapter' page.html || die "the page names no adapter"

# A line with other settings would make a second curve in the same directory: refused before anything is made.
other() { sf-eval checkpoints tuned -c eval.toml "$@"; }
expect 76 other --questions questions.jsonl --nth 2 --set generate.seed=1 -o evals; says "generate.seed was 42, is 1"
expect 76 other --questions questions.jsonl --set generate.seed=1 -o evals --plan; says "generate.seed was 42, is 1"
expect 76 other --questions questions.jsonl --allow-unfinished -o evals; says "rule aime-v1 had other options"
head -n 3 questions.jsonl >fewer.jsonl
expect 76 other --questions fewer.jsonl -o evals; says "questions was"
expect 76 sf-eval watch tuned -c eval.toml --set generate.top_k=3 --questions questions.jsonl -o evals --idle 1
says "generate.top_k was"
[ "$(ls evals/*.jsonl | wc -l)" = 4 ] || die "a refused line made verdicts"
expect 0 other --questions questions.jsonl --nth 2 --set generate.seed=1 -o seeds

# Another target than a run began from is refused before step 0 is answered.
sf-init lora target -o adapter1 >/dev/null 2>err
cp -r target stranger && sed -i 's/"rms_norm_eps": [0-9.e-]*/"rms_norm_eps": 0.01/' stranger/config.json && rm -f stranger/manifest.json
expect 76 sf-eval checkpoints adapted -c eval.toml --questions questions.jsonl --target stranger -o wrong
says "another target"
expect 76 sf-eval checkpoints adapted -c eval.toml --questions questions.jsonl --target stranger -o wrong --plan
expect 76 sf-eval watch adapted -c eval.toml --questions questions.jsonl --target stranger -o wrong --idle 1
[ ! -e wrong ] || die "step 0 was made for a wrong target"

# What is cut, empty or damaged is not done: it is made again, whole, and said.
keep=$(ls evals/step-2-*.jsonl); cp "$keep" whole.jsonl
for cut in "head -n 2" "head -c 700" "head -c 0" "sed 2s/.*/rubbish/"; do
  $cut whole.jsonl >"$keep"
  expect 0 series --nth 1 -o evals; says "verdicts that are not whole are made again: $keep"
  cmp "$keep" whole.jsonl || die "verdicts after '$cut'"
done
answers=$(ls evals/answers/step-2-*.jsonl) && rm "$keep" && head -c -9 "$answers" >cut && cp cut "$answers"
expect 65 series --nth 1 -o evals; says "the last line is half written"; says "; remove $answers, and the same line makes it again"
! grep -q -e --repair err || die "advice of another verb"
sed -i '$d' "$answers"
expect 65 series --nth 1 -o evals; says "and the same line makes it again"
rm "$answers"
expect 0 series --nth 1 -o evals; cmp "$keep" whole.jsonl || die "answers made again"

# Places that verdicts cannot go to, and what is no run or no checkpoint yet.
expect 73 series -o whole.jsonl; expect 73 series -o whole.jsonl/x --plan; expect 73 series -o tuned
expect 66 sf-eval watch whole.jsonl --questions questions.jsonl -o seen --idle 1; says "is no directory of a run"
expect 0 sf-eval watch later --questions questions.jsonl -o unseen --plan; says "later is not there yet"
expect 64 sf-eval watch later --questions questions.jsonl -o unseen --plan --idle soon
cp -r tuned copied && rm -rf copied/step-3 && mkdir copied/step-3
(sleep 1.5; cp -r tuned/step-3 copied/whole; rmdir copied/step-3; mv copied/whole copied/step-3) &
sf-eval watch copied -c eval.toml --questions questions.jsonl -o late --idle 3 >out 2>err || { cat err; die "watch of a copy"; }
says "step 3 is no whole checkpoint yet, and is awaited"; [ "$(wc -l <out)" = 3 ] || { cat out; die "what came late"; }
expect 66 sf-eval generate --target target --adapter adapted --questions questions.jsonl -o x.jsonl; says "adapted/latest"

# Rows that another line began say what differs, to a plan as well; a line that is none is named.
gen() { sf-eval generate --target target -c eval.toml --questions questions.jsonl "$@"; }
expect 0 gen -o rows.jsonl
{ printf '{"job":"%s","facts":{"temperature":0.25}}\n' x; tail -n +2 rows.jsonl | head -n 1; } >began.jsonl.partial
for plan in "" --plan; do expect 76 gen -o began.jsonl $plan; says "generate.temperature was 0.25, is 1"; done
expect 73 gen -o rows.jsonl --plan
