#!/usr/bin/env bash
# sf-capture over several ranks: the bits of one rank, a share of the target (or of the answers) on each, every ending agreed.
. "$(dirname "$0")/lib.sh"
tiny_setup
capture=(sf-capture features -c run.toml --target target --draft draft0 --data chats.jsonl)
rows_of() { sf-capture inspect "$1" --rows | grep '^position'; }
same_rows() { diff <(rows_of "$1") <(rows_of "$2") >diff.out || { head -n 4 diff.out; die "$2: other rows than $1"; }; }

# Directories: whatever number of ranks and however they hold the target, the rows of one rank.
expect 0 "${capture[@]}" -o one --format json; cp out one.json
for ranks in 2 3; do
  expect 0 "${capture[@]}" --ranks $ranks -o by$ranks --format json; cp out by$ranks.json
  says "self-test: 2 rows, " "bit-equal to plain forwards" "memory of rank $((ranks - 1)), MiB: at rest"
  same_rows one by$ranks
done
[ "$(ls by2/rows-*.frames | wc -l)" = 2 ] || die "two ranks did not both write"
expect 0 "${capture[@]}" --ranks 2 --set shard.backend=fsdp1 -o flat; same_rows one flat
expect 0 "${capture[@]}" --ranks 2 --set shard.backend=replicate -o whole; same_rows one whole
expect 0 "${capture[@]}" --set capture.feature_dtype=fp8 --set target.compute_dtype=bf16 -o narrow
expect 0 "${capture[@]}" --set capture.feature_dtype=fp8 --set target.compute_dtype=bf16 --ranks 2 -o narrow2; same_rows narrow narrow2
sf-init draft dflash --target target -o dflash0 >/dev/null 2>&1
for ranks in 1 2; do expect 0 sf-capture features --target target --draft dflash0 --data chats.jsonl --ranks $ranks -o dflash$ranks; done
same_rows dflash1 dflash2

{ head -n 20 chats.jsonl; tail -n 20 chats.jsonl; } | sed 's/"id": "c/"id": "n/' >other.jsonl
other=(sf-capture features -c run.toml --target target --draft draft0 --data other.jsonl)
expect 0 "${other[@]}" -o other
expect 0 "${other[@]}" --ranks 2 --reuse one -o other2; says "40 of 40 rows are taken from one"; same_rows other other2

# A rank keeps its share; what it held lies below the plan, and is most of it.
expect 0 "${capture[@]}" --ranks 2 --plan --format json -o planned; cp out plan.json
python3 - <<'P' || die "memory of the ranks"
import json
plan, one, two = (json.load(open(f)) for f in ("plan.json", "one.json", "by2.json"))
assert plan["ranks"] == 2 and one["tokens"] == two["tokens"] == plan["tokens"], (one, two)
for rank in two["memory"]:
    assert rank["at_rest_measured"] == rank["at_rest_predicted"] <= plan["rank_bytes_at_rest"], rank
    assert 0.6 * rank["peak_predicted"] < rank["peak_measured"] <= rank["peak_predicted"] <= plan["rank_bytes_peak"], rank
P

# Streams: the first rank serves what all make; training from it is training from the directory.
expect 0 sf-train eagle3 -c run.toml --draft draft0 --from one --set training.max_steps=3 -o by-dir
"${capture[@]}" --ranks 2 2>cap.err | sf-train eagle3 -c run.toml --draft draft0 --from - --tee kept --set training.max_steps=3 -o by-pipe >/dev/null 2>err || { cat cap.err err; die "a stream of two ranks"; }
[ "$(digest by-dir/latest)" = "$(digest by-pipe/latest)" ] || die "two ranks by pipe and one by directory differ"
grep -q "every trainer rank said BYE" cap.err && grep -q "memory of rank 1" cap.err || { cat cap.err; die "the end of a stream of two ranks"; }

# A fault of one rank's rows is every rank's end; a rank that is killed is named, and the same line goes on.
if ! SF_FAULT=run.shifted "${capture[@]}" --ranks 2 -o probe >/dev/null 2>err; then
  says "self-test: row" "it is shifted by one token"
  ends=$(SF_FAULT=run.layer_before "${capture[@]}" --ranks 2 2>cap.err | sf-train eagle3 -c run.toml --draft draft0 --from - -o never 2>err; echo "${PIPESTATUS[@]}")
  [ "$ends" = "65 69" ] || { cat cap.err err; die "a faulty stream of two ranks: the two sides ended with $ends"; }
fi
tiny_chats 600 many.jsonl
many=(sf-capture features -c run.toml --target target --draft draft0 --data many.jsonl)
"${many[@]}" -o undisturbed >/dev/null 2>&1
rank_of() { # rank_of SUPERVISOR NTH: once it is there
  for _ in $(seq 2000); do pgrep -P "$1" | sed -n "$2p" | grep . && return; sleep 0.01; done
}
kept() { { cat "$1".partial/rows-*.frames 2>/dev/null || true; } | wc -c; } # bytes of rows
grown() { for _ in $(seq 2000); do [ "$(kept "$1")" -gt $(($2 + 20000)) ] && return; sleep 0.01; done; } # grown OUT FROM
for nth in 2 1; do
  before=$(kept cut)
  "${many[@]}" --ranks 2 -o cut >/dev/null 2>err & pid=$!
  grown cut "$before"
  kill -KILL "$(rank_of $pid $nth)"; got=0; wait $pid || got=$?
  [ $got = 69 ] && grep -q "rank $((nth - 1))" err || { cat err; die "rank $((nth - 1)) killed: ended with $got"; }
done
expect 0 "${many[@]}" --ranks 3 -o cut; same_rows undisturbed cut
"${many[@]}" --ranks 2 -o stopped >/dev/null 2>err & pid=$!
grown stopped 0; kill -TERM $pid; got=0; wait $pid || got=$?
[ $got = 75 ] && grep -q "stopped; .* of 600 rows are kept" err || { cat err; die "TERM to two ranks: ended with $got"; }
expect 0 "${many[@]}" -o stopped; same_rows undisturbed stopped
"${capture[@]}" --ranks 2 --handle-file handle.json >/dev/null 2>cap.err & pid=$!
for _ in $(seq 2000); do [ -e handle.json ] && break; sleep 0.01; done
kill -KILL "$(rank_of $pid 2)"; got=0; wait $pid || got=$?
[ $got = 69 ] && grep -q "rank 1" cap.err || { cat cap.err; die "a rank killed while nobody asked: ended with $got"; }
rm -f handle.json
"${capture[@]}" --ranks 2 --handle-file handle.json >/dev/null 2>cap.err & pid=$!
for _ in $(seq 2000); do [ -e handle.json ] && break; sleep 0.01; done
kill -TERM $pid; got=0; wait $pid || got=$?
[ $got = 75 ] && [ ! -e handle.json ] || { cat cap.err; die "TERM to two ranks before a trainer joined ended with $got"; }

# Answers: ranks share the prompts and write the bytes of one; after a kill or a request to stop any number goes on.
again=(sf-capture regenerate --target target --prompts chats.jsonl --set generate.max_new_tokens=48 --set generate.temperature=0.8 --set generate.batch=2)
answers() { cat "$1".partial.1 2>/dev/null | grep -c input_ids; } # of the second rank
expect 0 "${again[@]}" -o said
for ranks in 2 3; do
  expect 0 "${again[@]}" --ranks $ranks -o said$ranks; says "30 answers by $ranks ranks (0 found already)"
  cmp said said$ranks && [ "$(cat out)" = said$ranks ] && [ "$(ls said$ranks*)" = said$ranks ] || { ls; die "$ranks ranks give other answers"; }
done
for end in KILL:69 TERM:75; do
  told=told-${end%:*}
  "${again[@]}" --ranks 2 -o "$told" >/dev/null 2>err & pid=$!
  for _ in $(seq 2000); do [ "$(answers "$told")" -ge 2 ] && break; sleep 0.005; done
  if [ $end = KILL:69 ]; then victim=$(rank_of $pid 2); else victim=$pid; fi
  kill -"${end%:*}" "$victim"; got=0; wait $pid || got=$?
  [ $got = "${end#*:}" ] && [ -e "$told.partial" ] && [ ! -e "$told" ] || { cat err; ls; die "$end: regenerate of two ranks ended with $got"; }
  for how in --plan ''; do expect 76 "${again[@]}" --set generate.temperature=0.7 --ranks 2 $how -o "$told"; says "was begun with other settings"; done
  expect 0 "${again[@]}" --ranks 3 -o "$told"
  grep -Eq '\(([2-9]|[12][0-9]) found already' err || { cat err; die "what two ranks had finished was made again"; }
  cmp said "$told" && [ "$(ls "$told"*)" = "$told" ] || { ls; die "$end: the answers are others"; }
done
expect 0 "${again[@]}" --ranks 2 --plan --format json -o planned-answers
[ "$(python3 -c 'import json; print(json.load(open("out"))["ranks"])')" = 2 ] || { cat out; die "the plan of answers by two ranks"; }

# What ranks cannot share is refused, by plan and run.
for how in --plan ''; do
  expect 78 "${capture[@]}" --ranks 2 --host-resident embed_tokens $how -o never; says "replicate"
  expect 64 sf-capture features --target target --draft draft0 --import one --ranks 2 $how -o never; says "start it once"
  expect 64 sf-capture features --synthetic draft0 --n 2 --ranks 2 $how -o never; says "one process"
done
