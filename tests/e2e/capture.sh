#!/usr/bin/env bash
# What sf-capture tells of its text and of itself: accounts, the self-test, masks, narrow types, imports, kills.
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2154
golden=$here/../golden
tiny_setup
capture=(sf-capture features -c run.toml --target target --draft draft0)

# The text is counted, the first rows are compared with plain forwards.
{ head -n 28 chats.jsonl; echo '{"id":"mute","messages":[{"role":"user","content":"the"}]}'; echo '{"id":"odd","messages":[{"role":"user"}]}'; } >mixed.jsonl
expect 0 "${capture[@]}" --data mixed.jsonl -o feats --format json
says "text: 30 rows in, 28 kept (0 truncated, 0 tokens left out), 2 rejected (1 without a supervised token)" \
  "the stop token is supervised in 28 of 28 answers" "self-test: 2 rows, " "bit-equal to plain forwards"
python3 - <<'P' || die "the account is not in the result"
import json
said = json.loads(open("out").read())
text = said["text"]
assert said["tokens"] == text["tokens"], said  # the self-test's are not among them
assert text["rows"] == 30 and text["kept"] == text["stop_token_supervised"] == 28 and 0 < text["supervised_tokens"] < text["tokens"]
P
expect 0 "${capture[@]}" --data mixed.jsonl --set capture.max_length=70 -o short; says "cut before theirs" " truncated, "
expect 0 "${capture[@]}" --data mixed.jsonl --set capture.selftest_rows=0 -o untested; grep -q self-test err && die "a self-test that was not wanted"

# Each fault of a capture ends it before anything is kept, by its name.
faulty() {  # faulty SWITCH WORDS
  expect 65 env SF_FAULT="$1" "${capture[@]}" --data chats.jsonl -o never; says "self-test: row" "$2"; [ ! -e never ] && [ ! -e never.partial ] || die "$1: something was kept"
}
if ! SF_FAULT=run.shifted "${capture[@]}" --data chats.jsonl -o probe >/dev/null 2>&1; then  # a build with switches
  faulty run.layer_before "it is layer 1"
  faulty run.no_final_norm "final_norm is not what a plain forward of the row gives: it is layer 6, the state without the final norm"
  faulty run.other_rows "it is that of row 0"
  faulty run.cached_prefix "tokens' states differ"
  faulty run.shifted "it is shifted by one token"
  ends=$(SF_FAULT=run.layer_before "${capture[@]}" --data chats.jsonl 2>cap.err | sf-train eagle3 -c run.toml --draft draft0 --from - -o never 2>err; echo "${PIPESTATUS[@]}")
  [ "$ends" = "65 69" ] || { cat cap.err err; die "a faulty stream: the two sides ended with $ends"; }
fi

# What is supervised can be seen: of chats, of features, in colours, as a page.
expect 0 sf-capture inspect chats.jsonl --mask --target target
grep -q '<|im_start|>assistant$' out && grep -q '^⟦.*<|im_end|>⟧$' out || { cat out; die "the mask does not stand out"; }
expect 0 env SF_COLOR=always sf-capture inspect feats --mask --target target; grep -q "$(printf '\033\[1;32m')" out || die "no colours"
grep -q "row 28 (id row-28): void: no supervised token" out || die "a void row is not shown"
expect 0 sf-capture inspect chats.jsonl --mask --target target --html -o mask.html; grep -q "<mark>.*&lt;|im_end|&gt;</mark>" mask.html || die "no page"
expect 64 sf-capture inspect chats.jsonl --html; says "--mask"
expect 0 sf-capture inspect feats --mask --target target --format json
python3 - <<'P' || die "the mask as JSON"
import json
seen = json.loads(open("out").read())
row = seen["rows"][0]
assert len(seen["rows"]) == seen["text"]["rows"] == 30 and seen["rows"][28]["void"] == "no supervised token"
assert any(part["supervised"] and part["text"].endswith("<|im_end|>") for part in row["parts"]), row
assert 0 < row["supervised_tokens"] < row["tokens"]
P
expect 64 sf-capture inspect feats --mask --rows --target target; says "give one"
expect 64 sf-capture inspect feats --mask --html --target target --format json; says "give one"
# Rows lie by their numbers; each says where it stands in the first epoch.
expect 0 sf-capture inspect feats --rows; cut -d' ' -f1-4 out >lines
expect 0 sf-capture inspect feats --rows --format json
python3 - <<'P' || die "positions of rows"
import json
samples = json.loads(open("out").read())["samples"]
places = [(s["position"], s["row"]) for s in samples]
assert [row for _, row in places] == list(range(30)) and sorted(at for at, _ in places) == list(range(30)), places
assert [at for at, _ in places] != list(range(30)), "the order is a permutation"
assert open("lines").read().splitlines()[:30] == [f"position {at} row {row}" for at, row in places]
P

# Eight bits: half the bytes, the effect said; training takes them, and their replay gives equal bits.
for type in bf16 fp8; do expect 0 "${capture[@]}" --data chats.jsonl --set capture.feature_dtype=$type -o $type; says "cross entropy of"; done
says "off by at most 1/16 of itself" "in F8_E4M3"
python3 - <<'P' || die "eight bits are not about half of sixteen"
import glob, os
size = {t: sum(os.path.getsize(f) for f in glob.glob(f"{t}/*.frames")) for t in ("bf16", "fp8")}
assert size["fp8"] < 0.75 * size["bf16"], size  # rows this narrow are mostly ids, masks and headers
P
expect 0 sf-train eagle3 -c run.toml --draft draft0 --from fp8 --set training.max_steps=2 -o by-dir
"${capture[@]}" --data chats.jsonl --set capture.feature_dtype=fp8 2>cap.err | sf-train eagle3 -c run.toml --draft draft0 --from - --tee kept --set training.max_steps=2 -o by-pipe >/dev/null 2>err || { cat cap.err err; die "eight bits by pipe"; }
[ "$(digest by-dir/latest)" = "$(digest by-pipe/latest)" ] || die "eight bits by pipe and by directory differ"
grep -q '"feature_dtype": *"F8_E4M3"' by-pipe/latest/manifest.json || die "the checkpoint does not hold the contract"

# SpecForge's files: each state must be nearest to the layer it should be; code in a pickle is refused.
sf-init draft eagle3 --target target --draft-vocab 64 --data chats.jsonl --set draft.layers=[1,3,5] -o draft135 >/dev/null 2>&1
sf-init draft eagle3 --target target --draft-vocab 64 --data chats.jsonl --set draft.layers=[2,3,5] -o draft235 >/dev/null 2>&1
import=(sf-capture features -c run.toml --target target --import "$golden/specforge_features/eagle3")
expect 0 "${import[@]}" --draft draft135 -n -o imported
expect 0 "${import[@]}" --draft draft135 -o imported; says "2 kept" "1 without a supervised token" "each state is nearest to the layer it should be"
expect 65 "${import[@]}" --draft draft235 -o never; says "should be layer 2 are nearest to layer 1"
expect 0 sf-train eagle3 -c run.toml --draft draft135 --from imported --set training.max_steps=1 --set training.micro_batches=2 -o learned
mkdir -p evil empty && cp "$golden/torch_file/evil.pt" evil/data_0.ckpt
expect 65 sf-capture features --target target --draft draft135 --import evil -o never; says "evil/data_0.ckpt" "refused"
expect 66 sf-capture features --target target --draft draft135 --import empty -o never
expect 64 sf-capture features --target target --draft draft135 -o never; says "--import"

# Killed at any byte, the same line goes on: rows as those of a run that nothing disturbed.
"${capture[@]}" --data chats.jsonl -o whole >/dev/null 2>&1
for cut in 0 1 700 5000 20000 40001; do
  rm -rf torn torn.partial && mkdir torn.partial && cp whole/rows-0-00000.frames torn.partial/ && truncate -s "$cut" torn.partial/rows-0-00000.frames
  python3 - <<'P'
import json
contract = json.load(open("whole/contract.json"))
json.dump(contract | {"present": 0, "void": 0, "shards": []}, open("torn.partial/contract.json", "w"))
P
  for how in --plan ''; do expect 76 "${capture[@]}" --data chats.jsonl --set capture.feature_dtype=fp8 $how -o torn; says feature_dtype; done
  expect 0 "${capture[@]}" --data chats.jsonl -o torn
  diff <(sf-capture inspect whole --rows | sed 's/^position [0-9]* //' | sort) <(sf-capture inspect torn --rows | sed 's/^position [0-9]* //' | sort) >diff.out ||
    { head diff.out; die "cut at $cut bytes, the rows are others"; }
done

# A row is known by its tokens and mask: twice in the data it is captured once, and what another directory holds is taken over.
{ cat chats.jsonl; sed 's/"id": "c/"id": "again-c/' chats.jsonl; } >twice.jsonl
expect 0 "${capture[@]}" --data twice.jsonl -o twice --format json; says "30 of 60 rows are what an earlier one is"; cp out said
expect 0 "${capture[@]}" --data twice.jsonl -o extended --reuse whole --format json; says "60 of 60 rows are taken from whole"; cp out taken-over
diff <(sf-capture inspect twice --rows) <(sf-capture inspect extended --rows) >diff.out || { head -n 4 diff.out; die "rows that were taken over are others"; }
python3 - <<'P' || die "rows that are the same"
import json, subprocess
once, over = json.load(open("said")), json.load(open("taken-over"))
assert 2 * once["tokens"] == once["text"]["tokens"] and over["tokens"] == 0, (once, over)
rows = json.loads(subprocess.run(["sf-capture", "inspect", "twice", "--rows", "--format", "json"], capture_output=True, check=True).stdout)["samples"]
assert len(rows) == 60 and all(rows[i]["tensors"] == rows[i + 30]["tensors"] for i in range(30))
P
for how in --plan ''; do
  expect 76 "${capture[@]}" --data twice.jsonl --set capture.feature_dtype=bf16 --reuse whole $how -o never; says "feature_dtype"
  expect 64 "${capture[@]}" --data twice.jsonl --reuse whole $how --handle-file never; says "-o DIR"
done
cp -r whole spoilt && printf 'x' | dd of=spoilt/rows-0-00000.frames bs=1 seek=3000 conv=notrunc 2>/dev/null
expect 65 "${capture[@]}" --data twice.jsonl --reuse spoilt -o never; says "spoilt/rows-0-00000.frames"
# What --reuse names is looked at before any weight is read.
cp -r target bent && printf 'x' | dd of=bent/model.safetensors bs=1 seek="$(($(stat -c %s bent/model.safetensors) - 3))" conv=notrunc 2>/dev/null
unread=(sf-capture features -c run.toml --target bent --draft draft0 --data chats.jsonl -o never)
expect 65 "${unread[@]}" --reuse whole; says "bent"
expect 66 "${unread[@]}" --reuse nowhere; says "nowhere"
expect 76 "${unread[@]}" --reuse whole --set capture.feature_dtype=bf16; says "feature_dtype"
rm -rf never never.partial
tiny_chats 400 many.jsonl
"${capture[@]}" --data many.jsonl -o never-killed >/dev/null 2>&1
for kill in 1 2 3; do
  "${capture[@]}" --data many.jsonl -o killed >/dev/null 2>&1 &
  for _ in $(seq 400); do [ "$(stat -c %s killed.partial/rows-0-0000$((kill - 1)).frames 2>/dev/null || echo 0)" -gt 30000 ] && break; sleep 0.01; done
  kill -KILL $! && wait $! || true
done
[ -d killed ] || expect 0 "${capture[@]}" --data many.jsonl -o killed
diff <(sf-capture inspect never-killed --rows | sed 's/^position [0-9]* //' | sort) <(sf-capture inspect killed --rows | sed 's/^position [0-9]* //' | sort) >/dev/null || die "killed three times, the rows are others"

# Told to stop before a trainer came, it ends as any verb that may be run again, and takes its handle back.
"${capture[@]}" --data chats.jsonl --handle-file handle.json >/dev/null 2>cap.err & pid=$!
for _ in $(seq 2000); do [ -e handle.json ] && break; sleep 0.01; done
expect 64 sf-capture inspect handle.json --rows; says "is a handle"
kill -TERM $pid; got=0; wait $pid || got=$?
[ $got = 75 ] && [ ! -e handle.json ] || { cat cap.err; die "TERM before a trainer joined ended with $got"; }

for how in --plan ''; do expect 73 "${capture[@]}" --data chats.jsonl --handle-file target $how; says "is a directory"; done

# The target's own answers: equal bytes whatever the batch, a kill and the same line again; each row says how it was drawn.
head -n 6 chats.jsonl >prompts.jsonl
again=(sf-capture regenerate --target target --prompts prompts.jsonl --set generate.max_new_tokens=12 --set generate.temperature=0.8 --set generate.top_k=20)
for batch in 1 4; do expect 0 "${again[@]}" --set generate.batch=$batch -o answers$batch.jsonl; done
cmp answers1.jsonl answers4.jsonl || die "the batch changed the answers"
for how in --plan ''; do
  expect 73 "${again[@]}" $how -o answers1.jsonl
  expect 73 "${again[@]}" $how -o nowhere/answers.jsonl
done
python3 - <<'P' || die "a row does not say how it was drawn"
import json
for line in open("answers1.jsonl"):
    row = json.loads(line)
    assert row["sampling"]["temperature"] == 0.8 and row["sampling"]["top_k"] == 20 and row["sampling"]["seed"] == 42, row["sampling"]
    assert len(row["input_ids"]) == len(row["loss_mask"]) and sum(row["loss_mask"]) in range(1, 13)
P
expect 0 "${capture[@]}" --data answers1.jsonl -o taken; says "6 kept"

# Killed at any moment it goes on to the same bytes. Another job, fewer prompts, a digit that changed: refused by plan and run.
RANDOM=11
more=(sf-capture regenerate --target target --prompts chats.jsonl --set generate.max_new_tokens=48 --set generate.temperature=0.8 --set generate.batch=2)
expect 0 "${more[@]}" -o undisturbed.jsonl
for rows in 2 9 17; do
  "${more[@]}" -o cut.jsonl >/dev/null 2>&1 & pid=$!
  for _ in $(seq 2000); do [ "$(cat cut.jsonl.partial 2>/dev/null | grep -c input_ids)" -ge $rows ] && break; sleep 0.005; done
  sleep "0.0$((RANDOM % 10))"; kill -KILL $pid 2>/dev/null || true; wait $pid || true
done
[ -e cut.jsonl.partial ] && [ ! -e cut.jsonl ] || die "regenerate was not killed on the way"
cp cut.jsonl.partial at-kill
for how in --plan ''; do
  expect 76 "${more[@]}" --set generate.temperature=0.7 $how -o cut.jsonl; says 'cut.jsonl.partial was begun with other settings: sampling was {"temperature":0.8'
  expect 76 "${more[@]}" --limit 1 $how -o cut.jsonl; says "holds an answer to c"
done
python3 - <<'P'
import re
text = open("at-kill").read()
at = re.search(r'"input_ids":\[\d*(\d)', text[: text.rindex("\n")]).start(1)
open("cut.jsonl.partial", "w").write(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
P
for how in --plan ''; do expect 76 "${more[@]}" $how -o cut.jsonl; says "is not what was written"; done
cp at-kill cut.jsonl.partial
expect 0 "${more[@]}" -o cut.jsonl
cmp cut.jsonl undisturbed.jsonl || die "killed three times, the answers are others"
