#!/usr/bin/env python3
"""Training against PyTorch FSDP2 on Gloo: same weights, threads (1 a rank) and ranks (2).

A, B: full fine-tuning of SmolLM2-135M (sf-train sft), same rows. C: an EAGLE3 draft (hidden 1024, vocabulary 8192, frozen
embedding 49152 x 1024, 3 unrolled steps) on random features of one shape; ours keeps the embedding in rows.

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

HERE = pathlib.Path(__file__).resolve().parent
# Tokens of a row, compute, goals of step and memory.
SHAPES = {"A": (256, "fp32", 0.30, 0.35), "B": (256, "bf16", 0.36, 0.40), "C": (512, "fp32", 0.33, 0.50),
          "A2048": (2048, "fp32", None, None), "B2048": (2048, "bf16", None, None)}
DRAFT = {"hidden": 1024, "vocab": 49152, "layers": 6, "intermediate": 2816, "heads": 16, "kv_heads": 8, "head_dim": 64}
EQUAL_GOAL = dict.fromkeys("ABC", 0.55)  # of a step with the same kernels on both sides
UNROLL, DRAFT_ROWS = 3, 2
SUPERVISED = 0.75  # of the tokens of random features; ours leaves out the others, the peer like the reference does not
# Of the draft, in matrix products of a token and unrolled step: attention, feed-forward, head. fc once.
DRAFT_MATRIX = 2 * 1024 * (16 + 8 + 8) * 64 + 1024 * 1024 + 3 * 1024 * 2816 + 8192 * 1024
DRAFT_FC = 3 * 1024 * 1024
# SmolLM2-135M: parameters in matrix products, head included; forward and backward are six operations each a token.
MATRIX_PARAMETERS = 106.2e6 + 28.3e6


class Watch(threading.Thread):
    """Highest resident size of any rank and proportional size of all, and their processor seconds: the ranks below one
    process, or these. `pss_every`: tenths of a second between two looks at the pages."""

    def __init__(self, pids, pss_every=10):
        super().__init__(daemon=True)
        self.pids, self.pss_every = pids, pss_every
        self.rss, self.pss, self.cpu, self.over = {}, 0, {}, threading.Event()

    def ranks(self):
        if len(self.pids) > 1:
            return self.pids
        found = list(self.pids)
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
                    if beat % self.pss_every == 0:  # walks every page: seldom
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


def sft_of(target, rows, length):
    return ["sft", "--target", target, "--data", rows, "--set", f"capture.max_length={length}"]


def draft_of(draft, features):
    return ["eagle3", "--draft", draft, "--from", features, "--set", f"training.batch_size={DRAFT_ROWS}", "--set",
            f"training.unroll={UNROLL}", "--set", "shard.frozen_tables=embed_tokens=rows"]


def ours(a, what, dtype, steps, ranks, work, threads=1, pss_every=10, kernels="own"):
    run = work / f"run{time.monotonic_ns()}"
    started = time.time()
    child = subprocess.Popen(
        [a.build / "bin/sf-train", *what, "--ranks", str(ranks), "-o", run, "-q",
         "--set", f"engine.kernels={kernels}", "--set", f"engine.compute_dtype={dtype}", "--set", f"engine.threads={threads}", "--set", f"training.micro_batches={ranks}",
         "--set", f"training.max_steps={steps}", "--set", "training.total_steps=1000", "--set", "training.epochs=1000",
         "--set", "training.max_grad_norm=0", "--set", "training.learning_rate=1e-5"],
        stdout=subprocess.DEVNULL)
    watch = Watch([child.pid], pss_every)
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
    memory = records[-1]["memory"][-1]
    records = [record for record in records if "loss" in record]
    seconds = [sum(value for key, value in record.items() if key.startswith("time_")) for record in records]
    subprocess.run(["rm", "-rf", run], check=True)
    return {"launch": ends[0] - started, "steps": seconds[1:], "rss": max(watch.rss.values()), "pss": watch.pss,
            "cpu": (cpu[-1] - cpu[0]) / max(1, len(cpu) - 1) / ranks, "memory": memory, "loss": [record["loss"] for record in records],
            "split": {key: statistics.median(r[key] for r in records[1:]) for key in records[0] if key.startswith("time_")}}


def sft_peer(target, rows, dtype, *how):
    return lambda rank, ranks, port, steps: [HERE / "fsdp2_peer.py", target, rows, rank, ranks, port, steps, dtype, *how]


def draft_peer(draft, length):
    return lambda rank, ranks, port, steps: [HERE / "eagle3_peer.py", draft, rank, ranks, port, steps, UNROLL, DRAFT_ROWS, length]


def theirs(peer, steps, ranks, pss_every=10):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.time()
    children = [subprocess.Popen([sys.executable, *(str(word) for word in peer(rank, ranks, port, steps))],
                                 stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
                for rank in range(ranks)]
    watch = Watch([child.pid for child in children], pss_every)
    watch.start()
    texts = [child.communicate()[0] for child in children]
    watch.over.set()
    assert all(child.returncode == 0 for child in children)
    lines = [[json.loads(line) for line in text.splitlines() if line.startswith("{")] for text in texts]
    taken = [[line for line in rank if "s" in line] for rank in lines]
    return {"launch": max(rank[0]["at"] for rank in taken) - started,
            "steps": [max(rank[i]["s"] for rank in taken) for i in range(1, steps)],
            "rss": max(watch.rss.values()), "pss": watch.pss,
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


def idle_pss(command):
    """PSS in MiB, both together, of two processes that have loaded their libraries and wait."""
    waiting = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    for child in waiting:
        child.stdout.readline()
    rollups = [pathlib.Path(f"/proc/{child.pid}/smaps_rollup").read_text() for child in waiting]
    for child in waiting:
        child.communicate()
    return sum(int(line.split()[1]) / 1024 for text in rollups for line in text.splitlines() if line.startswith("Pss:"))


def bench_loading(a, target, work, rows_out):
    """From the weights on disk to the end of the first step: ours, and rank 0 that reads a model and hands out its state."""
    rows = work / "loading.jsonl"
    write_rows(rows, 64)
    mine, peers = [], []
    for _ in range(a.pairs):
        mine.append(ours(a, sft_of(target, rows, 64), "fp32", 2, 2, work, pss_every=1))
        peers.append(theirs(sft_peer(target, rows, "fp32", "full"), 2, 2, pss_every=1))
    bases = [idle_pss([a.build / "tests/bench/idle_bench", "wait"]),
             idle_pss([sys.executable, "-c", "import torch, transformers, torch.distributed.fsdp; print(flush=True); __import__('sys').stdin.read()"])]
    print(f"SmolLM2-135M, 2 ranks, from launch to the end of step 1; n = {a.pairs} pairs; idle {bases[0]:.0f} and {bases[1]:.0f} MiB")
    time_ratio = ratio("launch to first step", [run["launch"] for run in mine], [run["launch"] for run in peers], 0.33, "s")
    pss_ratio = ratio("peak PSS above idle, both", [run["pss"] - bases[0] for run in mine], [run["pss"] - bases[1] for run in peers],
                      0.5, "MiB")
    print(f"    first losses {mine[0]['loss'][0]:.5f} and {peers[0]['loss'][0]:.5f}", flush=True)
    rows_out.append({"name": "loading", "ours": mine, "peer": peers, "time_ratio": time_ratio, "pss_ratio": pss_ratio})


def ratio(name, mine, peers, goal, unit):
    value = statistics.median(mine) / statistics.median(peers)
    print(f"    {name:33} ours {statistics.median(mine):8.3f}  FSDP2 {statistics.median(peers):8.3f} {unit:4} ratio {value:5.2f}"
          + (f"  (goal {goal})" if goal else ""), flush=True)
    return value


def write_model(folder, shape):
    """A random Hugging Face directory of a model of this shape."""
    sys.path.insert(0, str(HERE.parent / "support"))
    import make_tiny_model
    import numpy
    import safetensors.numpy

    def write(path, shapes, rng):
        values = numpy.random.default_rng(rng.randrange(2**32))
        safetensors.numpy.save_file({name: values.standard_normal(shape, dtype=numpy.float32) * numpy.float32(0.02)
                                     for name, shape in shapes.items()}, path)

    make_tiny_model.write_safetensors = write
    make_tiny_model.main(["", str(folder), *(f"{key}={value}" for key, value in shape.items())])


def make_draft(a, work):
    """The draft of shape C, of a random target of its sizes, and features for it."""
    import tables

    write_model(work / "hf", DRAFT)
    tables.write_chats(work / "c.jsonl", 8)
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([a.build / "bin/sf-init", "model", work / "hf", "-o", work / "c-target"], **quiet)
    subprocess.run([a.build / "bin/sf-init", "draft", "eagle3", "--target", work / "c-target", "--draft-vocab", "8192", "--data",
                    work / "c.jsonl", "-o", work / "c-draft"], **quiet)
    subprocess.run([a.build / "bin/sf-capture", "features", "--synthetic", work / "c-draft", "--n", "8", "--set",
                    f"capture.max_length={SHAPES['C'][0]}", "-o", work / "c-features"], **quiet)
    return work / "c-draft", work / "c-features"


def pair_of(a, shape, target, work):
    """Our command, the peer's, its title, and multiplications of a rank's step."""
    length, dtype = SHAPES[shape][:2]
    if shape == "C":
        draft, features = make_draft(a, work)
        tokens = DRAFT_ROWS * length
        return (draft_of(draft, features), draft_peer(draft, length), f"EAGLE3 draft, {DRAFT_ROWS} x {length} tokens, "
                f"{SUPERVISED:.0%} of them supervised, fp32", 3 * SUPERVISED * tokens * (UNROLL * DRAFT_MATRIX + DRAFT_FC))
    rows = work / f"{shape}.jsonl"
    write_rows(rows, length)
    return (sft_of(target, rows, length), sft_peer(target, rows, dtype), f"SmolLM2-135M, 1 x {length} tokens, {dtype}",
            3 * length * MATRIX_PARAMETERS)


def bench(a, target, work, rows_out):
    base_ours, base_theirs = idle_ours(a), idle_theirs()
    print(f"training, 2 ranks, 1 thread each; {a.pairs} pairs of {a.steps} steps in turns; idle {base_ours:.0f} and "
          f"{base_theirs:.0f} MiB; load {os.getloadavg()[0]:.1f}")
    for shape in a.shapes.split(","):
        dtype, goal, memory_goal = SHAPES[shape][1:]
        what, peer, title, multiplications = pair_of(a, shape, target, work)
        mine, peers = [], []
        for _ in range(a.pairs):
            mine.append(ours(a, what, dtype, a.steps, 2, work))
            peers.append(theirs(peer, a.steps, 2))
        plain = theirs(peer, a.steps, 1)
        alike = ours(a, what, dtype, a.steps, 2, work, kernels="plain")
        gather = lambda runs, key: [value for run in runs for value in (run[key] if key == "steps" else [run[key]])]  # noqa: E731
        print(f"  {shape}: {title}; n = {a.pairs} pairs of {a.steps - 1} steps")
        step = ratio("step", gather(mine, "steps"), gather(peers, "steps"), goal, "s")
        ratio("step, LibTorch's kernels in both", alike["steps"], gather(peers, "steps"), EQUAL_GOAL.get(shape), "s")
        cpu = ratio("processor time of a step", gather(mine, "cpu"), gather(peers, "cpu"), None, "s")
        above = lambda runs, base: [value - base for value in gather(runs, "rss")]  # noqa: E731
        memory = ratio("peak resident above idle", above(mine, base_ours), above(peers, base_theirs),
                       memory_goal, "MiB")
        ratio("peak PSS, both ranks", gather(mine, "pss"), gather(peers, "pss"), None, "MiB")
        launch = ratio("launch to first step", gather(mine, "launch"), gather(peers, "launch"), 0.20, "s")
        seconds = statistics.median(gather(mine, "steps"))
        print(f"    against unsharded PyTorch, one row: {seconds / statistics.median(plain['steps']):.2f}; share of torch's GEMM "
              f"({peers[0]['gemm']:.0f} GFLOP/s): {2e-9 * multiplications / seconds / peers[0]['gemm']:.2f}; a step of nothing but "
              f"products at that speed: {2e-9 * multiplications / peers[0]['gemm'] / statistics.median(gather(peers, 'steps')):.2f} "
              f"of FSDP2's; first "
              f"losses {mine[0]['loss'][0]:.5f} and {peers[0]['loss'][0]:.5f}")
        print("    ours by part: " + ", ".join(f"{key[5:-2]} {value:.3f}" for key, value in mine[-1]["split"].items()), flush=True)
        memory = mine[-1]["memory"]
        print("    planned and measured, MiB: " + ", ".join(
            f"{key.replace('_', ' ')} {memory[key + '_predicted'] / 2**20:.0f} {memory[key + '_measured'] / 2**20:.0f}"
            for key in ("at_rest", "peak", "resident")), flush=True)
        rows_out.append({"name": f"fsdp2 {shape}", "ours": mine, "peer": peers, "plain": plain, "step_ratio": step,
                         "cpu_ratio": cpu, "memory_ratio": memory, "launch_ratio": launch})
