#!/usr/bin/env python3
"""All-gather and reduction of 64 MiB between two ranks of this host: shared memory against PyTorch's Gloo, in turns."""
import json
import pathlib
import re
import socket
import statistics
import subprocess
import sys

PEER = pathlib.Path(__file__).with_name("collectives_peer.py")


def ours(a):
    text = subprocess.run([a.build / "tests/bench/comm_bench"], capture_output=True, text=True, check=True).stdout
    copy, gather, fold = (float(number) for number in re.findall(r"([0-9.]+) GiB/s", text))
    return {"memcpy": copy, "gather": gather, "reduce": fold}


def theirs():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [subprocess.Popen([sys.executable, PEER, str(rank), str(port)], stdout=subprocess.PIPE, text=True)
                for rank in range(2)]
    return json.loads([child.communicate()[0] for child in children][0].splitlines()[-1])


def bench(a, rows_out):
    mine, peers = [], []
    for _ in range(a.pairs):
        mine.append(ours(a))
        peers.append(theirs())
    copy = statistics.median(run["memcpy"] for run in mine)
    print(f"64 MiB between 2 ranks; {a.pairs} pairs in turns; memcpy by both at once {copy:.2f} GiB/s")
    for what in ("gather", "reduce"):
        here, there = (statistics.median(run[what] for run in runs) for runs in (mine, peers))
        print(f"  {what:7} ours {here:6.2f}  Gloo {there:6.2f} GiB/s; of memcpy {here / copy:.2f} (goal 0.6) and {there / copy:.2f}",
              flush=True)
    rows_out.append({"name": "collectives", "ours": mine, "peer": peers})
