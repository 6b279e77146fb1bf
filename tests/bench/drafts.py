"""Training steps of drafts against plain PyTorch, eager (run.py --part drafts).

One process of two threads each, in turns: hidden 512, vocabulary 32768, one row of 512 tokens, 64 anchors of blocks of 8
(EAGLE3: 7 unrolled steps), random features of which three quarters of the tokens are supervised. The first step of a run is
left out; a row with LibTorch's kernels on both sides, and the products' share of torch's GEMM speed, are printed beside.
Memory is the most resident above an idle process of its kind. The other families have no peer here: their steps
are shown beside.
"""
import json
import statistics
import subprocess
import sys

import fsdp2
import tables

HERE = fsdp2.HERE
TARGET = {"hidden": 512, "vocab": 32768, "layers": 6, "intermediate": 1408, "heads": 8, "kv_heads": 4, "head_dim": 64}
TOKENS, ANCHORS, BLOCK, THREADS = 512, 64, 8, 2
PEERS = ("eagle3", "dflash", "dspark")
ALONE = ("dflash2", "domino", "peagle")
GOALS = {"fp32": 0.5, "bf16": 0.7}
MEMORY_GOAL = 0.5
UNROLLED = 7


def make(a, work):
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    fsdp2.write_model(work / "d-hf", TARGET)
    subprocess.run([a.build / "bin/sf-init", "model", work / "d-hf", "-o", work / "d-target"], **quiet)
    tables.write_chats(work / "d.jsonl", 8)
    for family in PEERS + ALONE:
        own = ["--set", f"draft.block_size={BLOCK}", "--set", "draft.hidden_layers=2"]
        if family in ("eagle3", "peagle"):
            own = ["--draft-vocab", str(TARGET["vocab"]), "--data", work / "d.jsonl"]
        subprocess.run([a.build / "bin/sf-init", "draft", family, "--target", work / "d-target", *own, "-o", work / f"d-{family}"], **quiet)
        subprocess.run([a.build / "bin/sf-capture", "features", "--synthetic", work / f"d-{family}", "--n", "8", "--set",
                        f"capture.max_length={TOKENS}", "-o", work / f"d-{family}-features"], **quiet)


def ours(a, family, dtype, work, kernels="own"):
    anchors = [] if family in ("eagle3", "peagle") else ["--set", f"training.num_anchors={ANCHORS}"]
    what = [family, "--draft", work / f"d-{family}", "--from", work / f"d-{family}-features", "--set", "training.batch_size=1", *anchors]
    return fsdp2.ours(a, what, dtype, a.steps, 1, work, THREADS, kernels=kernels)


def theirs(a, family, dtype, work):
    done = subprocess.run([sys.executable, HERE / "drafts_peer.py", family, work / f"d-{family}", dtype, str(a.steps), str(THREADS),
                           str(TOKENS), str(ANCHORS)], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {"steps": [line["s"] for line in lines if "s" in line][1:], "rss": lines[-1]["peak_mib"], "gemm": lines[-1]["gemm_gflops"]}


def needed(folder, family):
    """GFLOP of the matrix products that a step's mathematics needs, nothing computed twice: forward, and the gradients of
    what trains and of what is read by it. 512 tokens or slots; a frozen head has no gradient of its own."""
    config = json.loads((folder / "config.json").read_text())
    h, vocab = config["hidden_size"], config["vocab_size"]
    words, steps = config.get("draft_vocab_size", vocab), UNROLLED if family == "eagle3" else 1
    with open(folder / "model.safetensors", "rb") as file:
        shapes = {k: v["shape"] for k, v in json.loads(file.read(int.from_bytes(file.read(8), "little"))).items() if k != "__metadata__"}
    total = 0
    for name, shape in shapes.items():
        size = shape[0] * shape[1] if len(shape) == 2 and "embed" not in name and "markov_w1" not in name else 0
        rows = TOKENS * (2 if family != "eagle3" and (".k_proj" in name or ".v_proj" in name) else 1)
        once = name == "fc.weight"  # features are read, not trained
        total += 2 * size * rows * (2 if once else 3 * steps)
    if family != "eagle3":
        total += 2 * h * vocab * TOKENS * (3 if family == "dspark" else 2)  # the target's head: forward, states' gradient, teacher
    else:
        total += 2 * h * words * TOKENS  # the teacher
    return total / 1e9


def line(name, mine, peers, goal, unit):
    a, b = statistics.median(mine), statistics.median(peers)
    print(f"    {name:34} ours {a:9.3f}  eager {b:9.3f} {unit:4} ratio {a / b:5.2f}  (goal {goal})", flush=True)
    return a / b


def bench(a, work, rows_out):
    make(a, work)
    base_ours, base_theirs = fsdp2.idle_ours(a), fsdp2.idle_theirs()
    print(f"drafts against PyTorch eager, {THREADS} threads, {TOKENS} tokens, {ANCHORS} x {BLOCK} slots; {a.pairs} pairs of "
          f"{a.steps - 1} steps in turns")
    for dtype, goal in GOALS.items():
        for family in PEERS + ALONE:
            mine, peers = [], []
            for _ in range(a.pairs):
                mine.append(ours(a, family, dtype, work))
                if family in PEERS:
                    peers.append(theirs(a, family, dtype, work))
            steps = [s for run in mine for s in run["steps"]]
            planned, seen = (mine[-1]["memory"][f"peak_{kind}"] / 2**20 for kind in ("predicted", "measured"))
            if not peers:
                print(f"    {family + ' ' + dtype:34} ours {statistics.median(steps):9.3f} s; peak {planned:.0f} MiB planned, {seen:.0f} measured",
                      flush=True)
                continue
            eager = [s for run in peers for s in run["steps"]]
            time = line(f"{family} {dtype}, a step", steps, eager, goal, "s")
            equal = [s for s in ours(a, family, dtype, work, kernels="plain")["steps"]]
            line(f"{family} {dtype}, LibTorch's kernels in both", equal, eager, "printed", "s")
            work_of, gemm = needed(work / f"d-{family}", family), peers[-1]["gemm"]
            print(f"      {work_of:.0f} GFLOP of products: {work_of / statistics.median(steps):.0f} GFLOP/s, "
                  f"{100 * work_of / statistics.median(steps) / gemm:.0f} % of torch's GEMM (eager {100 * work_of / statistics.median(eager) / gemm:.0f} %)",
                  flush=True)
            memory = line(f"{family} {dtype}, resident above idle", [run["rss"] - base_ours for run in mine],
                          [run["rss"] - base_theirs for run in peers], MEMORY_GOAL, "MiB")
            print(f"      peak of tensors {planned:.0f} MiB planned, {seen:.0f} measured; torch's GEMM here {gemm:.0f} GFLOP/s")
            rows_out.append({"name": f"draft {family} {dtype}", "ours": mine, "peer": peers, "step_ratio": time, "memory_ratio": memory})
