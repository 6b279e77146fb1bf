#!/usr/bin/env python3
"""The stream against pyzmq: the same bytes in frames of 1 MiB over tcp loopback, XXH3 of each on both sides.

Part stream of run.py. Ours also carries a header a frame, asks for every sample, and puts it together in memory of its
own; the peer pushes frames and drops them once hashed. Encrypted, and the wait of a rank that is slower than its producer,
are reported apart.
"""
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
SAMPLES, TOKENS = 24, 2048


def line_of(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def bench(a, rows):
    ours = [a.build / "tests/bench/stream_bench", SAMPLES, TOKENS]
    peer = [sys.executable, HERE / "stream_peer.py", SAMPLES, TOKENS]
    mine, theirs, locked = [], [], []
    for turn in range(a.repeat + 1):
        values = line_of([*ours, 0, "plain"])["gb_per_s"], line_of(peer)["gb_per_s"], line_of([*ours, 0, "encrypted"])["gb_per_s"]
        if turn > 0:  # the first warms up
            for kept, value in zip((mine, theirs, locked), values):
                kept.append(value)
    for name, values, goal in (("stream, distinct 67 MB samples", mine, "goal >= 0.95"), ("stream, encrypted", locked, "reported")):
        ratio = statistics.median(values) / statistics.median(theirs)
        rows.append({"name": name, "unit": "GB/s", "ours": values, "peer": theirs, "peer_name": "pyzmq", "ratio": ratio, "goal": goal})
        print(f"{name:34} ours {statistics.median(values):9.2f}  pyzmq {statistics.median(theirs):9.2f} GB/s      ratio {ratio:5.2f}  "
              f"({goal}; n = {len(values)}, spread ours {min(values):.2f}..{max(values):.2f}, pyzmq {min(theirs):.2f}..{max(theirs):.2f})", flush=True)
    waits = [100 * line_of([*ours, 200, "plain"])["waits"] for _ in range(min(3, a.repeat))]
    rows.append({"name": "stream, wait of a slower trainer", "unit": "%", "ours": waits, "goal": "< 1 %"})
    print(f"{'stream, wait of a slower trainer':34} {statistics.median(waits):.2f} % of its time in steps of 200 ms a sample, behind the "
          f"first  (goal < 1 %; n = {len(waits)}, spread {min(waits):.2f}..{max(waits):.2f})", flush=True)
