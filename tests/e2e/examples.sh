#!/usr/bin/env bash
# Every example that a --help shows is run, on a tiny model (hence a smaller draft vocabulary), and ends with 0.
. "$(dirname "$0")/lib.sh"
mkdir room && cd room
tiny_setup tied=false
mv hf hf-model
cp "${SF_GGUF:-/nonexistent}" smollm2.gguf 2>/dev/null || echo "not run: examples that read smollm2.gguf (SF_GGUF is not set)"
mkdir demo
for file in prompts held; do head -n 6 "$here/../../man/examples/demo/$file.jsonl" >demo/$file.jsonl; done
cp "$here/../../man/examples/demo/demo.toml" demo/
cp "$here"/../../man/examples/*.toml .
features -o features >/dev/null 2>../err || { cat ../err; die features; }
sf-train eagle3 -c run.toml --draft draft0 --from features -o run --set training.max_steps=2 >/dev/null 2>../err || { cat ../err; die run; }
sf-eval accept --target target --draft draft0 --prompts demo/held.jsonl --format json --set generate.max_new_tokens=4 >before.json 2>../err
cp before.json after.json
cp -rL run/latest run/step-100 && cp -rL run/latest run/step-200  # their bytes are equal: diff ends with 0
sf-shard export target --to hf -o model-hf >/dev/null 2>../err || { cat ../err; die model-hf; }
sf-shard export run/latest --to sglang -o run-step100 >/dev/null 2>../err || { cat ../err; die run-step100; }
cp run-step100/config.json eagle3.json
cp -r "$here/../../man/examples/aime" .
for i in 1 2 3 4 5 6; do echo "{\"id\":\"s$i\",\"question\":\"the cat and $i\",\"answer\":\"$i\"}"; done >sums.jsonl
sed 's/"s/"h/; s/cat and/other cat and/' sums.jsonl >held.jsonl
mkdir verdicts
for step in 0 150; do
  sf-eval score aime/answers.jsonl --questions aime/questions.jsonl --step $step -o step$step.jsonl >/dev/null 2>../err ||
    { cat ../err; die "score of step $step"; }
done
cp step150.jsonl verdicts/
sf-train sft --target target --data chats.jsonl --set training.max_steps=2 --set training.checkpoint_every=1 -o tuned >/dev/null 2>../err ||
  { cat ../err; die tuned; }
mkdir shards
for i in 0 1; do
  sf-eval score aime/answers.jsonl --questions aime/questions.jsonl --shard $i/2 -o shards/$i.jsonl >/dev/null 2>../err ||
    { cat ../err; die "score of shard $i"; }
done
for draft in dflash:dflash0 dflash2:dflash2-0 dspark:dspark0 domino:domino0 peagle:peagle0; do
  words=()
  [ "${draft%:*}" != peagle ] || words=(--draft-vocab 64 --data chats.jsonl)
  [ "${draft%:*}" != domino ] || words=(--set draft.gru_hidden_dim=32) # that of a real draft takes a quarter of this test
  sf-init draft "${draft%:*}" --target target "${words[@]}" -o "${draft#*:}" >/dev/null 2>../err || { cat ../err; die "$draft"; }
done
for family in dflash dspark; do
  sf-capture features -c run.toml --target target --draft ${family}0 --data chats.jsonl -o features-$family >/dev/null 2>../err ||
    { cat ../err; die "features-$family"; }
done
sf-init lora target -o adapter0 >/dev/null 2>../err || { cat ../err; die adapter0; }
sf-train sft --target target --adapter adapter0 --data chats.jsonl --set training.max_steps=1 -o run-lora >/dev/null 2>../err ||
  { cat ../err; die run-lora; }
sf-shard merge run-lora/latest --keep -o merged >/dev/null 2>../err || { cat ../err; die merged; }
differs() { [[ $? = 1 && $1 == "sf-shard diff smollm2"* ]]; }  # the tiny target is not what the file holds
count=0
for command in sf-init sf-shard sf-capture sf-train sf-eval; do
  "$command" --help --format json | python3 -c '
import json, sys
for verb in json.load(sys.stdin)["verbs"]:
    for example in verb["examples"]: print(example)' >../examples
  while IFS= read -r line; do
    case $line in *smollm2.gguf*) [ -e smollm2.gguf ] || continue ;; esac
    line=${line/--draft-vocab 8192/--draft-vocab 64}
    rm -rf ../copy && cp -r . ../copy
    out=$(sed -n 's/.* -o \([^ ]*\).*/\1/p' <<<"$line")
    [ -z "$out" ] || rm -rf "../copy/$out"
    case $line in *--resume*) cp -r run ../copy/ ;; esac
    (cd ../copy && set -o pipefail && timeout 120 bash -c "$line" >../out 2>../err </dev/null) || differs "$line" || { cat ../err; die "example: $line"; }
    count=$((count + 1))
  done <../examples
done
[ $count -ge 20 ] || die "only $count examples were run"
echo "$count examples run"

"$here/../../man/examples/toy/run.sh" ../toy >../out 2>../err || { cat ../err; die "the toy example"; }
[ -s ../toy/report.html ] && [ -e ../toy/run/latest/manifest.json ] || die "the toy example left no report or no draft"
echo "the toy example run"
