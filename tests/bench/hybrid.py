"""Layers of hybrid models against transformers' torch forms, eager, and rows of a table of n-grams (run.py --part hybrid).

One process of two threads each, in turns: forward and backward of one layer on 2,048 tokens, with the same values; the first
step of a run is left out. Memory is the most resident above what was before the layer. Results and gradients are compared,
as the largest difference over the largest value. The table is as a run maps one of residency host: a file, read once before.
"""
import json
import statistics
import subprocess
import sys

import fsdp2

HERE = fsdp2.HERE
TOKENS, THREADS = 2048, 2
# Goals of time and memory.
LAYERS = {"delta": ("gated delta net, hidden 512, 4 and 8 heads of 64", 0.5, 0.5),
          "experts": ("64 experts of 512 x 256, 8 a token", 0.7, None)}
BOUNDS = {"fp32": 1e-4, "bf16": 5e-2}  # of a difference; bf16 rounds each operand of a sum to 2^-9
ROW_WIDTH, ROW_BASE, ROW_HEADS, ROW_GOAL = 160, 209_715, 16, 1e6  # 1 GiB of bf16 rows
GAP = 8192  # primes from a base on, 16 of them, lie closer


def last_json(command):
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def difference(mine, peers):
    """Of results, and the worst of all gradients with its name."""
    import numpy
    import safetensors.numpy

    a, b = (safetensors.numpy.load_file(path) for path in (mine, peers))
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    apart = {name: float(numpy.abs(a[name] - b[name]).max() / numpy.abs(b[name]).max()) for name in b}
    y = apart.pop("y")
    worst = max(apart, key=apart.get)
    return y, apart[worst], worst.rsplit("model.layers.0.", 1)[-1]


def layer(a, kind, dtype, folder, work, rows_out):
    title, time_goal, memory_goal = LAYERS[kind]
    name = f"{title}, {dtype}"
    mine, peers, outs = [], [], [work / f"{kind}-{side}.safetensors" for side in ("ours", "theirs")]
    how = [kind, folder, dtype, THREADS, a.steps]
    for _ in range(a.pairs):
        mine.append(last_json([a.build / "tests/bench/hybrid_bench", "layer", *how, outs[0]]))
        peers.append(last_json([sys.executable, HERE / "hybrid_peer.py", *how, outs[1]]))

    def ratio(what, values, unit, goal):
        ours, theirs = (statistics.median(values(run) for run in runs) for runs in (mine, peers))
        goal = f"goal {goal}" if goal else "printed"
        print(f"    {what:10} ours {ours:9.4f}  transformers {theirs:9.4f} {unit:4} ratio {ours / theirs:5.2f}  ({goal})", flush=True)
        return ours / theirs

    print(f"  {name}")
    time = ratio("a step", lambda run: statistics.median(run["s"][1:]), "s", time_goal)
    memory = ratio("peak", lambda run: run["mib"], "MiB", memory_goal)
    y, worst, where = difference(*outs)
    print(f"    largest difference: results {y:.1e}, gradients {worst:.1e} ({where})", flush=True)
    assert max(y, worst) < BOUNDS[dtype], f"{name}: the sides do not agree"
    rows_out.append({"name": f"hybrid {kind} {dtype}", "ours": mine, "peer": peers, "time_ratio": time, "memory_ratio": memory,
                     "differences": [y, worst]})


def table(a, work, rows_out):
    import numpy

    file = work / "rows"
    values = numpy.random.default_rng(3)
    with open(file, "wb") as out:
        for _ in range((ROW_BASE + GAP) * ROW_HEADS * ROW_WIDTH * 2 // (1 << 24) + 1):
            out.write((values.integers(0, 1 << 14, 1 << 23, dtype=numpy.uint16) + numpy.uint16(0x3000)).tobytes())
    found = last_json([a.build / "tests/bench/hybrid_bench", "rows", file, ROW_BASE, ROW_WIDTH, TOKENS, 9 * a.pairs])
    file.unlink()
    speed, hashed = (statistics.median(found[key][1:]) for key in ("found", "hashed"))
    both = 1 / (1 / speed + 1 / hashed)
    print(f"  table of n-grams, {found['rows']:,} rows of {ROW_WIDTH} bf16 ({found['rows'] * ROW_WIDTH * 2 / 2**30:.2f} GiB), mapped, one core")
    print(f"    {both / 1e6:.2f} million rows/s (goal {ROW_GOAL / 1e6:.0f}): hashing alone {hashed / 1e6:.1f}, rows alone {speed / 1e6:.2f}", flush=True)
    rows_out.append({"name": "hybrid table", "found": found["found"], "hashed": found["hashed"], "rows_per_s": both})


def bench(a, work, rows_out):
    print(f"layers of hybrid models, {THREADS} threads, {TOKENS} tokens, forward and backward; {a.pairs} pairs of {a.steps - 1} steps in turns")
    for kind in LAYERS:
        folder = work / f"hybrid-{kind}"
        subprocess.run([sys.executable, HERE / "hybrid_peer.py", "make", kind, folder, str(TOKENS)], check=True)
        for dtype in BOUNDS:
            layer(a, kind, dtype, folder, work, rows_out)
    table(a, work, rows_out)
