#!/usr/bin/env bash
# The whole path on a tiny model: convert, answer, initialise, measure, train through the pipe on two ranks, measure, report.
. "$(dirname "$0")/lib.sh"
tiny_setup
python3 - <<'P'
import json
with open("prompts.jsonl", "w") as out:
    for i in range(6):
        out.write(json.dumps({"id": f"p{i}", "messages": [{"role": "user", "content": f"the cat {i} and"}]}) + "\n")
P
sf-capture regenerate --target target --prompts prompts.jsonl -o answers.jsonl --set generate.max_new_tokens=12 2>err || { cat err; die regenerate; }
[ "$(wc -l <answers.jsonl)" = 6 ] || die "6 answers wanted"
features 2>capture.err | sf-train eagle3 -c run.toml --draft draft0 --from - --ranks 2 -o run >train.out 2>train.err ||
  { cat capture.err train.err; die train; }
[ "$(cat train.out)" = "$(realpath --relative-to=. "$(readlink -f run/latest)")" ] || die "stdout must hold the checkpoint's path: $(cat train.out)"
sf-shard verify run/latest >err 2>&1 || { cat err; die verify; }
for draft in draft0 run/latest; do
  sf-eval accept --target target --draft $draft --prompts prompts.jsonl --format json \
    --set generate.max_new_tokens=16 >accept.json 2>err || { cat err; die accept; }
  python3 -c '
import json
a = json.load(open("accept.json"))
assert a["greedy_equal"] is True and a["greedy_ties"] == 0, a
assert a["prompts"] == 6 and a["acceptance_length"] >= 1.0, a'
done
sf-eval report run -o report.html >/dev/null 2>err || { cat err; die report; }
grep -q '<svg' report.html || die "no picture in the report"
first=$(losses run | head -n 1 | cut -d' ' -f2) last=$(losses run | tail -n 1 | cut -d' ' -f2)
python3 -c "import sys; sys.exit(not float('$last') < float('$first'))" || die "loss went from $first to $last"
