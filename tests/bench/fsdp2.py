#!/usr/bin/env python3
"""Full fine-tuning, sf-train sft against PyTorch FSDP2 on Gloo: same weights, rows, threads (1 a rank) and ranks (2).

Runs take turns, pair by pair; the first step of a run counts for the launch, the others for the step. Memory is what
the ranks hold until the end of the last step (ours publishes a checkpoint then, FSDP2 does not) above an idle process of
their kind, read from /proc. No clipping, one row a rank and step, the same row each time.
"""
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time

PEER = pathlib.Path(__file__).with_name("fsdp2_peer.py")
SHAPES = {"A": (256, "fp32", 0.30), "B": (256, "bf16", 0.36), "A2048": (2048, "fp32", None), "B2048": (2048, "bf16", None)}
# SmolLM2-135M: parameters in matrix products, head included; forward and backward are six operations each a token.
MATRIX_PARAMETERS = 106.2e6 + 28.3e6


class Watch(threading.Thread):
    """Highest resident and proportional size of any rank below a process, and their processor seconds."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.rss, self.pss, self.cpu, self.over = pid, {}, 0, {}, threading.Event()

    def ranks(self):
        found = [self.pid]
        for pid in found:
            try:
                found += [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
            except OSError:
                continue
        return found if len(found) == 1 else found[1:]

    def run(self):
        beat = 0
        while not self.over.wait(0.1):
            total, beat = 0, beat + 1
            for pid in self.ranks():
                try:
                    proc = pathlib.Path(f"/proc/{pid}")
                    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
                    self.rss[pid] = max(self.rss.get(pid, 0), int(status["VmHWM"].split()[0]) / 1024)
                    if beat % 10 == 0:  # walks every page: seldom
                        rollup = (proc / "smaps_rollup").read_text()
                        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024
                    fields = (proc / "stat").read_text().rsplit(")", 1)[1].split()
                    self.cpu[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                except (OSError, KeyError, IndexError, ValueError):
                    continue
            self.pss = max(self.pss, total)


def write_rows(path, length, count=1):
    import random

    rng = random.Random(7)
    with open(path, "w", encoding="utf-8") as out:
        for _ in range(count):
            ids = [rng.randrange(49152) for _ in range(length)]
            out.write(json.dumps({"input_ids": ids, "loss_mask": [1] * length}) + "\n")


def ours(a, target, rows, length, dtype, steps, ranks, work):
    run = work / f"run{time.monotonic_ns()}"
    started = time.time()
    child = subprocess.Popen(
        [a.build / "bin/sf-train", "sft", "--target", target, "--data", rows, "--ranks", str(ranks), "-o", run, "-q",
         "--set", f"engine.compute_dtype={dtype}", "--set", "engine.threads=1", "--set", f"training.micro_batches={ranks}",
         "--set", f"training.max_steps={steps}", "--set", "training.total_steps=1000", "--set", "training.epochs=1000",
         "--set", "training.max_grad_norm=0", "--set", "training.learning_rate=1e-5", "--set", f"capture.max_length={length}"],
        stdout=subprocess.DEVNULL)
    watch = Watch(child.pid)
    watch.start()
    ends, cpu, seen = [], [], 0
    while child.poll() is None:
        lines = [json.loads(line) for line in open(run / "metrics.jsonl")] if (run / "metrics.jsonl").exists() else []
        done = sum("loss" in line for line in lines)
        if done > seen:
            ends.append(time.time())
            cpu.append(sum(watch.cpu.values()))
            seen = done
        if seen == steps:
            watch.over.set()
        time.sleep(0.01)
    watch.over.set()
    assert child.returncode == 0, child.returncode
    records = [json.loads(line) for line in open(run / "metrics.jsonl")]
    records = [record for record in records if "loss" in record]
    seconds = [sum(value for key, value in record.items() if key.startswith("time_")) for record in records]
    subprocess.run(["rm", "-rf", run], check=True)
    return {"launch": ends[0] - started, "steps": seconds[1:], "rss": max(watch.rss.values()), "pss": watch.pss,
            "cpu": (cpu[-1] - cpu[0]) / max(1, len(cpu) - 1) / ranks, "loss": [record["loss"] for record in records],
            "split": {key: statistics.median(r[key] for r in records[1:]) for key in records[0] if key.startswith("time_")}}


def theirs(target, rows, dtype, steps, ranks):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.time()
    children = [subprocess.Popen([sys.executable, PEER, target, rows, str(rank), str(ranks), str(port), str(steps), dtype],
                                 stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
                for rank in range(ranks)]
    watches = [Watch(child.pid) for child in children]
    for watch in watches:
        watch.start()
    texts = [child.communicate()[0] for child in children]
    for watch in watches:
        watch.over.set()
    assert all(child.returncode == 0 for child in children)
    lines = [[json.loads(line) for line in text.splitlines() if line.startswith("{")] for text in texts]
    taken = [[line for line in rank if "s" in line] for rank in lines]
    return {"launch": max(rank[0]["at"] for rank in taken) - started,
            "steps": [max(rank[i]["s"] for rank in taken) for i in range(1, steps)],
            "rss": max(max(watch.rss.values()) for watch in watches), "pss": sum(watch.pss for watch in watches),
            "cpu": statistics.median(rank[i]["cpu"] for rank in taken for i in range(1, steps)),
            "loss": [statistics.mean(rank[i]["loss"] for rank in taken) for i in range(steps)],
            "gemm": next(line["gemm_gflops"] for line in lines[0] if "gemm_gflops" in line)}


def idle(command):
    """Resident MiB of a process that has loaded its libraries and does nothing."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def idle_theirs():
    return idle([sys.executable, "-c", "import torch, transformers, torch.distributed.fsdp;"
                 "print([int(l.split()[1]) / 1024 for l in open('/proc/self/status') if l.startswith('VmHWM')][0])"])


def idle_ours(a):
    return idle([a.build / "tests/bench/idle_bench"])


def ratio(name, mine, peers, goal, unit):
    value = statistics.median(mine) / statistics.median(peers)
    print(f"    {name:28} ours {statistics.median(mine):8.3f}  FSDP2 {statistics.median(peers):8.3f} {unit:4} ratio {value:5.2f}"
          + (f"  (goal {goal})" if goal else ""), flush=True)
    return value


def bench(a, target, work, rows_out):
    base_ours, base_theirs = idle_ours(a), idle_theirs()
    print(f"full fine-tuning, 2 ranks, 1 thread each; {a.pairs} pairs of {a.steps} steps in turns; idle {base_ours:.0f} and "
          f"{base_theirs:.0f} MiB; load {os.getloadavg()[0]:.1f}")
    for shape in a.shapes.split(","):
        length, dtype, goal = SHAPES[shape]
        data = work / f"{shape}.jsonl"
        write_rows(data, length)
        mine, peers = [], []
        for _ in range(a.pairs):
            mine.append(ours(a, target, data, length, dtype, a.steps, 2, work))
            peers.append(theirs(target, data, dtype, a.steps, 2))
        plain = theirs(target, data, dtype, a.steps, 1)
        gather = lambda runs, key: [value for run in runs for value in (run[key] if key == "steps" else [run[key]])]  # noqa: E731
        print(f"  {shape}: SmolLM2-135M, 1 x {length} tokens, {dtype}")
        step = ratio("step", gather(mine, "steps"), gather(peers, "steps"), goal, "s")
        cpu = ratio("processor time of a step", gather(mine, "cpu"), gather(peers, "cpu"), None, "s")
        above = lambda runs, base: [value - base for value in gather(runs, "rss")]  # noqa: E731
        memory = ratio("peak resident above idle", above(mine, base_ours), above(peers, base_theirs),
                       {"A": 0.35, "B": 0.40}.get(shape), "MiB")
        ratio("peak PSS, both ranks", gather(mine, "pss"), gather(peers, "pss"), None, "MiB")
        launch = ratio("launch to first step", gather(mine, "launch"), gather(peers, "launch"), 0.20, "s")
        seconds = statistics.median(gather(mine, "steps"))
        print(f"    against unsharded PyTorch, one row: {seconds / statistics.median(plain['steps']):.2f}; share of torch's GEMM "
              f"({peers[0]['gemm']:.0f} GFLOP/s): {6e-9 * MATRIX_PARAMETERS * length / seconds / peers[0]['gemm']:.2f}; first "
              f"losses {mine[0]['loss'][0]:.5f} and {peers[0]['loss'][0]:.5f}")
        print("    ours by part: " + ", ".join(f"{key[5:-2]} {value:.3f}" for key, value in mine[-1]["split"].items()), flush=True)
        rows_out.append({"name": f"fsdp2 {shape}", "ours": mine, "peer": peers, "plain": plain, "step_ratio": step,
                         "cpu_ratio": cpu, "memory_ratio": memory, "launch_ratio": launch})
