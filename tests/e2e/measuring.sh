#!/usr/bin/env bash
# Random features in production shapes, and what training on them tells of itself: counters, spans, a step's picture.
. "$(dirname "$0")/lib.sh"
tiny_setup
expect 0 sf-capture features --synthetic draft0 --n 30 --set capture.max_length=48 --format json -o random
grep -q '"rows":30' out || die "no count of rows: $(cat out)"
expect 0 sf-capture inspect random
expect 0 sf-capture features --synthetic draft0 --n 30 --set capture.max_length=48 -o again
cmp random/rows-0-00000.frames again/rows-0-00000.frames || die "the same shape gave other numbers"
expect 0 sf-capture features --synthetic qwen3-8b --n 256 -o huge --plan
[ ! -e huge ] || die "--plan wrote"
python3 - <<'P' || die "the plan of qwen3-8b features"
import json
plan = json.load(open("out"))
assert (plan["vocab"], plan["hidden"], plan["rows"], plan["max_length"]) == (151936, 4096, 256, 2048), plan
assert plan["bytes"] == 256 * 2048 * (13 + 4 * 4096 * 2), plan["bytes"]
P
expect 64 sf-capture features --synthetic qwen9 -o x; says "qwen3-8b" "qwen9"
expect 64 sf-capture features --synthetic qwen3-8b/7 -o x; says "no multiple of 7"
expect 64 sf-capture features --synthetic draft0 --data chats.jsonl -o x; says "--data"
expect 64 sf-capture features --synthetic draft0; says "output"
expect 64 sf-capture features --n 3 -o x; says "--synthetic"
expect 73 sf-capture features --synthetic draft0 -o random

sf-train eagle3 -c run.toml --draft draft0 --from random -o run --ranks 2 --set training.epochs=2 --set training.trace_every=4 \
  >/dev/null 2>err || { cat err; die "training on random features"; }
python3 - <<'P' || die "counters or spans are not what shardforge(7) says"
import json
steps = [r for r in map(json.loads, open("run/metrics.jsonl")) if r["event"] == "step"]
for r in steps:
    took = r["perf/optimizer_step_time_s"]
    assert took > 0 and abs(r["perf/optimizer_steps_per_hour"] * took - 3600) < 1e-3, r
    assert abs(r["perf/global_samples_per_second"] * took - (r["positions"] - r["voids"])) < 1e-6, r
    assert abs(r["perf/global_tokens_per_second"] * took - r["tokens"]) < 1e-3, r
    assert 0 <= r["perf/communication_exposed_s"] <= r["perf/train_compute_time_s"] <= took + 1e-6, r
    assert r["perf/data_wait_time_s"] >= 0 and r["perf/bytes_sent"] > 0, r
for rank in (0, 1):
    spans = [r for r in map(json.loads, open(f"run/spans-{rank}.jsonl")) if r["event"] == "span"]
    assert {r["step"] for r in spans} == {2, 4}, {r["step"] for r in spans}
    for step in (2, 4):
        mine = [r for r in spans if r["step"] == step]
        assert all(a["end"] == b["begin"] for a, b in zip(mine, mine[1:])), "spans leave gaps"
        assert {"data", "compute", "optimizer", "gather", "reduce"} <= {r["kind"] for r in mine}
        assert all(r["waited"] <= r["end"] - r["begin"] + 1e-6 for r in mine if "waited" in r)
P
expect 0 sf-eval report --trace run
[ "$(cat out)" = run/trace.svg ] || die "report --trace said $(cat out)"
python3 -c 'import xml.etree.ElementTree as e; t = e.parse("run/trace.svg").getroot(); assert "Step 4" in t.attrib["aria-label"], t.attrib' || die "the picture"
# A fresh run in less ranks leaves no span of the old one; no trace, no file.
rm -rf run
sf-train eagle3 -c run.toml --draft draft0 --from random -o run --set training.epochs=1 --set training.trace_every=0 >/dev/null 2>err || { cat err; die "no trace"; }
[ -z "$(find run -name 'spans-*')" ] || die "spans although training.trace_every is 0"
expect 66 sf-eval report --trace run; says "holds no spans"
